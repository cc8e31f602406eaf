"""Graphs whose operands pass through half precision in the device's memory, and how far their results are off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType, Graph, Node
from mace_core.ops import core_ops
from mace_core.ops.slice import SliceAttributes
from mace_core.run.reference import execute


def insert_copies(graph: Graph) -> Graph:
    """Return the graph with each input of floats negated: ports stay f32, and the result is stored in half."""
    one = core_ops()["Neg"]
    nodes: list[Node] = []
    tensors = dict(graph.tensors)
    names: dict[str, str] = {}
    for name in graph.inputs:
        if tensors[name].dtype is DType.F32:
            names[name] = f"{name}_negative"
            tensors[names[name]] = replace(tensors[name], name=names[name])
            nodes.append(Node(f"negate_{name}", one, (name,), (names[name],)))
    moved = [replace(node, inputs=tuple(names.get(t, t) for t in node.inputs)) for node in graph.nodes]
    return replace(graph, nodes=(*nodes, *moved), tensors=tensors)


def reverse_results(graph: Graph) -> Graph:
    """Return the graph with the rows of each output of floats reversed: what the ops write is stored in half."""
    one = core_ops()["Slice"]
    nodes = list(graph.nodes)
    tensors = dict(graph.tensors)
    outputs: list[str] = []
    for name in graph.outputs:
        tensor = tensors[name]
        if tensor.dtype is DType.F32 and tensor.shape:
            rows = tensor.shape[0]
            starts = (rows - 1, *(0 for _ in tensor.shape[1:]))
            attrs = SliceAttributes(starts, tensor.shape, (-1, *(1 for _ in tensor.shape[1:])))
            name = f"{name}_reversed"
            tensors[name] = replace(tensor, name=name)
            nodes.append(Node(f"reverse_{name}", one, (tensor.name,), (name,), attrs))
        outputs.append(name)
    return replace(graph, nodes=tuple(nodes), tensors=tensors, outputs=tuple(outputs))


def round_floats(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs that half precision holds exactly, so that no op with steps takes another one."""
    return {
        name: array.astype(np.float16).astype(np.float32) if array.dtype == np.float32 else array
        for name, array in inputs.items()
    }


def list_errors(
    graph: Graph, outputs: Mapping[str, Array], inputs: Mapping[str, Array]
) -> Mapping[str, float]:
    """Return the error of each output; 1 where an integer, an infinity or NaN differs."""
    expected = execute(graph, inputs)
    errors: dict[str, float] = {}
    for name in graph.port_outputs:
        actual, reference = outputs[name], expected[name]
        is_finite = np.isfinite(reference)
        is_equal = np.array_equal(actual[~is_finite], reference[~is_finite], equal_nan=True)
        if reference.dtype == np.float32:
            errors[name] = _measure_half_error(actual[is_finite], reference[is_finite])
        else:
            is_equal = np.array_equal(actual, reference)
            errors[name] = 0.0
        if not is_equal:
            errors[name] = 1.0
    return errors


def _measure_half_error(actual: Array, expected: Array) -> float:
    """Return the largest difference, relative to the largest expected magnitude that half precision rounds.

    Below its least normal number half precision has steps of one size: there a rounding is relative to that number.
    """
    scale = max(float(np.finfo(np.float16).smallest_normal), float(np.abs(expected).max(initial=0)))
    return float(np.abs(actual - expected).max(initial=0)) / scale
