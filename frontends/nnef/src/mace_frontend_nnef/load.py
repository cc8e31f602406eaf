"""Reads an NNEF model as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.hints import refuse_shapes
from mace_core.importer import ImportedNode, needed_nodes, refuse_names, shape_fault, size_fault
from mace_core.ir import DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_nnef.importer import NnefImporter
from mace_frontend_nnef.node import NnefNode
from mace_frontend_nnef.ops import handlers
from mace_frontend_nnef.source import read

TYPES: Mapping[str, DType] = {"scalar": DType.F32, "integer": DType.I64, "logical": DType.BOOL}
"""NNEF's type of an input -> the IR's. NNEF states no width; float32 and int64 are those of its own tools."""


def convert(node: NnefNode) -> str | Sequence[str]:
    """Add what computes an operation; an op of a plugin takes precedence over the handler."""
    custom = node.builder.ops.get(custom_name(node))
    return node.done(custom, node.inputs()) if custom else handlers()[node.op](node)


def custom_name(node: ImportedNode) -> str:
    """Return the name by which a plugin offers an op for this operation."""
    return f"nnef::{node.op}"


def explain_unknown(node: ImportedNode) -> str | None:
    """Return why an operation is not supported; None if it is."""
    if node.op in handlers() or custom_name(node) in node.builder.ops:
        return None
    remedy = f"cut the graph before it with output_tensors, or add {custom_name(node)!r} by a plugin"
    return f"this operation is not supported; {remedy}"


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Return the part of a model between the inputs and outputs that the deployment file names.

    MaceError with every fault: what is damaged, or each operation that the IR cannot represent.
    """
    source = read(files)
    importer = NnefImporter(source, Builder(model.name, {**core_ops(), **ops}), convert)
    nodes = [NnefNode(operation, importer) for operation in source.graph.operations]
    tensors = list(source.graph.kinds)
    for direction, ports, own_names in (
        ("input", model.inputs, source.graph.inputs),
        ("output", model.outputs, source.graph.outputs),
    ):
        missing = [port.name for port in ports if port.name not in tensors]
        refuse_names(importer.location, direction, missing, tensors, own_names)
    stated = {port.name: port.shape for port in model.inputs}
    outputs = [port.name for port in model.outputs] or list(source.graph.outputs)
    needed = needed_nodes(nodes, outputs, stated, (NnefNode.reads, NnefNode.results))
    externals = [node for node in nodes if node.op == "external"]
    # Where the deployment file cuts the graph, inputs that only operations before the cut read are left out:
    # the library would ask its user for values that nothing uses.
    inputs = [node for node in externals if not stated or node.name in stated or node in needed]
    importer.refuse_unknown((node for node in needed if node.op != "external"), explain_unknown)
    _add_inputs(importer, stated, inputs)
    for node in needed:
        if node.op != "external":
            importer.scope.bind(node.results(), importer.translate(node))
    return importer.finish(lambda: [importer.scope.find(name) for name in outputs], outputs)


def _add_inputs(
    importer: NnefImporter, stated: Mapping[str, Shape | None], externals: Sequence[NnefNode]
) -> None:
    """Declare the inputs; MaceError for all whose shapes are missing or contradict the file."""
    declared: dict[str, Shape | None] = dict.fromkeys(stated)
    declared |= {node.name: node.integers("shape") for node in externals}
    shapes = {name: stated.get(name) or shape for name, shape in declared.items()}
    faults = []
    for name, shape in declared.items():
        dims: list[int | None] | None = None
        if shape is not None:
            # The shape of an external may have sizes of 0, which the description leaves open.
            dims = [size if size > 0 else None for size in shape]
        # The first axis is a batch, for which the deployment file may state another size.
        fault = shape_fault(name, dims, stated.get(name), free=(0,))
        fault = fault or size_fault(name, shapes[name] or ())
        if fault:
            faults.append(fault)
    refuse_shapes(importer.location, faults, shapes)
    for name, shape in shapes.items():
        dtype = TYPES.get(importer.source.graph.kinds[name], DType.F32)
        importer.scope.values[name] = importer.builder.input(name, dtype, shape or ())
