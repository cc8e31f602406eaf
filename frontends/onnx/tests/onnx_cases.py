"""ONNX's own operator cases as graphs: what every target can be tested with."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import onnx

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.verify import verify
from mace_frontend_onnx import Onnx


@cache
def cases() -> tuple[Any, ...]:
    """Every case of the installed onnx for a single operator."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases are computed with overflows on purpose
        return tuple(load_model_tests(kind="node"))


LONG = (
    # A second or more each, for windows and images that are large.
    *("averagepool", "lppool", "maxpool", "image_decoder", "_image_decoder_data", "affinegrid"),
    # Many cases that differ in their types only.
    *("bitshift", "cast", "castlike"),
    # Functions, losses and optimizers, which have no handler of their own.
    *("attention", "causal_conv_with_state", "flexattention", "linear_attention"),
    *("softmax_cross_entropy_loss", "negativeloglikelihoodloss", "adagrad", "adam", "momentum"),
)
"""Modules of cases that are left out where all cases would take too long."""

SIMILAR = re.compile(
    r"_expanded|_(u?int(8|16|32|64)|float(16|64)|example|default|bcast|broadcast|[1-3]d_axis\w+)$"
)
"""What stands in the names of cases that differ from others by little."""


@cache
def quick_cases() -> tuple[Any, ...]:
    """The cases without the modules in LONG and without those that are like others: a third, in a fifth of the time."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [found.name for found in walk_packages(node.__path__, f"{node.__name__}.")]
        quick = [name for name in names if name.rpartition(".")[2] not in LONG]
        first = len(node._NodeTestCases)
        for name in quick:
            import_module(name)
    # Where `cases` was called before, all are there already.
    made = node._NodeTestCases[first:] or node._NodeTestCases
    return tuple(case for case in made if not SIMILAR.search(case.name))


def bound(model: onnx.ModelProto, names: Sequence[str], arrays: Sequence[Array]) -> onnx.ModelProto:
    """The model with these inputs as constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [i for i in made.graph.input if i.name not in names]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(a, n) for n, a in zip(names, arrays, strict=True)
    )
    return made


def choices(arrays: dict[str, Array]) -> list[list[str]]:
    """Which inputs to bind, tried one after another: none, those that are no data by their type, all but the first, all."""
    typed = [n for n, a in arrays.items() if a.dtype != np.float32]
    return [c for i, c in enumerate(([], typed, list(arrays)[1:], list(arrays))) if i == 0 or c]


def load(model: onnx.ModelProto, arrays: dict[str, Array], path: Path) -> Graph:
    """The verified graph of a model, its inputs of the shapes of these arrays.

    MaceError where it cannot be read.
    """
    path.write_bytes(model.SerializeToString())
    ports = tuple(Port(i.name, shape=arrays[i.name].shape) for i in model.graph.input)
    return verify(Onnx().load((path,), Model("case", (path,), inputs=ports), core_ops()))


def graph_of(case: Any, path: Path) -> tuple[Graph, dict[str, Array], list[Array]] | str:
    """The graph of a case, its inputs by name and its outputs; or why there is none.

    Inputs that the IR wants as attributes are bound as constants, as few as will do.  path: a file to write
    the model to.
    """
    inputs, outputs = (
        [onnx.numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in arrays]
        for arrays in case.data_sets[0]
    )
    if not all(isinstance(a, np.ndarray) or np.isscalar(a) for a in (*inputs, *outputs)):
        return "an input or output is no tensor"
    names = [i.name for i in case.model.graph.input]
    arrays = {n: np.asarray(a) for n, a in zip(names, inputs, strict=True)}
    why = ""
    for chosen in choices(arrays):
        try:
            graph = load(bound(case.model, chosen, [arrays[n] for n in chosen]), arrays, path)
        except MaceError as error:
            why = str(error)
            if "computed at run time" in why:
                continue
            return why
        expected = [
            filled(graph, name, np.asarray(o)) for name, o in zip(graph.outputs, outputs, strict=True)
        ]
        return graph, {n: arrays[n] for n in graph.inputs}, expected
    return why


def filled(graph: Graph, name: str, wanted: Array) -> Array:
    """What the graph computes for an output whose length is known at run time only: the same, then rows of -1."""
    shape = graph.tensors[name].shape
    if not any(name in n.outputs and n.op.name == "NonMaxSuppression" for n in graph.nodes):
        return wanted
    return np.pad(wanted, ((0, shape[0] - len(wanted)), (0, 0)), constant_values=-1)
