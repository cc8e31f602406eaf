"""A Caffe network as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import refuse_shapes
from mace_core.importer import ImportedNode, needed_nodes, refuse_names, size_fault
from mace_core.ir import DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_caffe.importer import CaffeImporter
from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import handlers
from mace_frontend_caffe.source import Source, read


def convert(node: CaffeNode) -> str | Sequence[str]:
    """Add what computes a layer: a plugin's op comes before the handler."""
    custom = node.builder.ops.get(custom_name(node))
    return node.done(custom, node.inputs()) if custom else handlers()[node.op](node)


def custom_name(node: ImportedNode) -> str:
    """Return the name that a plugin's op for this type of layer bears."""
    return f"caffe::{node.op}"


def explain_unknown(node: ImportedNode) -> str | None:
    """Return why a layer is not supported; None if it is."""
    if node.op in handlers() or custom_name(node) in node.builder.ops:
        return None
    return f"this type is not supported; cut the graph before it with output_tensors, or add {custom_name(node)!r} by a plugin"


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a network between the inputs and outputs that the deployment file names.

    Blobs that nothing reads are its outputs.

    MaceError with every fault: what is damaged, or each layer that the IR cannot represent.
    """
    source = read(files)
    importer = CaffeImporter(source, Builder(model.name, {**core_ops(), **ops}), convert)
    inputs = _inputs(source, model)
    layers = [layer for layer in source.layers if layer.type != "Input"]
    wanted = [p.name for p in model.outputs] or _unread(layers)
    blobs = [*inputs, *(t for layer in layers for t in layer.top)]
    refuse_names(
        source.file.name, "output", [name for name in wanted if name not in blobs], blobs, _unread(layers)
    )
    cuts = set(inputs) - _declared(source).keys()
    layers = needed_nodes(layers, wanted, cuts, (lambda layer: layer.bottom, lambda layer: layer.top))
    nodes = [CaffeNode(layer, importer) for layer in layers]
    importer.refuse_unknown(nodes, explain_unknown)
    if model.inputs:  # a network that is cut needs no input before the cut
        used = {p.name for p in model.inputs}.union(wanted, *(layer.bottom for layer in layers))
        inputs = {name: shape for name, shape in inputs.items() if name in used}
    _refuse_sizes(source, inputs)
    for name, shape in inputs.items():
        importer.blobs.values[name] = importer.builder.input(name, DType.F32, shape)
    for node in nodes:
        importer.blobs.bind(node.layer.top, importer.translate(node))
    return importer.finish(lambda: [importer.blobs.find(name) for name in wanted], wanted)


def port_names(files: Files) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the network's own inputs and outputs, in its order."""
    source = read(files)
    return tuple(_declared(source)), tuple(
        _unread([layer for layer in source.layers if layer.type != "Input"])
    )


def _declared(source: Source) -> dict[str, Shape]:
    """The network's inputs with the shapes that it gives them; () for none."""
    net = source.net
    dims = [tuple(s.dim) for s in net.input_shape] or [
        tuple(net.input_dim[i : i + 4]) for i in range(0, len(net.input_dim), 4)
    ]
    declared = {name: dims[i] if i < len(dims) else () for i, name in enumerate(net.input)}
    for layer in source.layers:
        if layer.type == "Input":
            shapes = [tuple(s.dim) for s in layer.input_param.shape]
            shapes = shapes * len(layer.top) if len(shapes) == 1 else shapes
            declared |= {name: shapes[i] if i < len(shapes) else () for i, name in enumerate(layer.top)}
    return declared


def _inputs(source: Source, model: Model) -> dict[str, Shape]:
    """The network's inputs, or what the deployment file names instead, with their shapes; () for none."""
    declared = _declared(source)
    given = {p.name: p.shape or () for p in model.inputs}
    tops = {t for layer in source.layers for t in layer.top}
    refuse_names(
        source.file.name,
        "input",
        [name for name in given if name not in tops | declared.keys()],
        [*declared, *tops],
        declared,
    )
    made = {name: given.get(name) or shape for name, shape in declared.items()} | {
        n: s for n, s in given.items() if n not in declared
    }
    if not made:
        raise MaceError(
            source.file.name,
            "has no input",
            "give the .prototxt of the network as it is deployed, with an Input layer",
        )
    return made


def _refuse_sizes(source: Source, inputs: Mapping[str, Shape]) -> None:
    """MaceError unless each input has a shape that a network can work on."""
    faults = []
    for name, shape in inputs.items():
        fault = size_fault(name, shape) if shape else f"input {name!r} has no shape"
        faults += [fault] if fault else []
    refuse_shapes(source.file.name, faults, {name: shape or None for name, shape in inputs.items()})


def _unread(layers: Sequence[Any]) -> list[str]:
    """Blobs that no layer reads after they are written last, in the order of the file."""
    last: dict[str, bool] = {}
    for layer in layers:
        for name in layer.bottom:
            last.pop(name, None)
        last.update(dict.fromkeys(layer.top, True))
    return list(last)
