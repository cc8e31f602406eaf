"""Builds the graph of a Caffe network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mace_core.api import Files, PortNames
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import refuse_shapes
from mace_core.importer import ImportedNode, needed_nodes, refuse_names, size_fault
from mace_core.ir import DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_caffe.importer import CaffeImporter
from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import handlers
from mace_frontend_caffe.source import NetworkSource, read


def convert(node: CaffeNode) -> str | Sequence[str]:
    """Add what computes a layer: a plugin's op takes precedence over the handler."""
    if custom := node.builder.ops.get(custom_name(node)):
        return node.done(custom, node.inputs())
    unknown = node.importer.source.unknown.get(node.name, ())
    node.refuse_unless(not unknown, f"it has {', '.join(unknown)}, which no layer here reads", CUT_BEFORE)
    tensors = handlers()[node.op](node)
    node.refuse_unread_bottoms()
    return tensors


def custom_name(node: ImportedNode) -> str:
    """Return the name that a plugin's op for this type of layer has."""
    return f"caffe::{node.op}"


def explain_unknown(node: ImportedNode) -> str | None:
    """Return why a layer is not supported; None if it is."""
    if node.op in handlers() or custom_name(node) in node.builder.ops:
        return None
    return f"this type is not supported; {CUT_BEFORE}, or add {custom_name(node)!r} by a plugin"


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a network between the inputs and outputs that the deployment file names.

    Blobs that no layer reads are its outputs if the deployment file names none.

    MaceError with every fault: what is damaged, or each layer that the IR cannot represent.
    """
    source = read(files)
    importer = CaffeImporter(source, Builder(model.name, {**core_ops(), **ops}), convert)
    inputs = _input_shapes(source, model)
    layers = _computing_layers(source)
    outputs = [port.name for port in model.outputs] or _find_unread(layers)
    blobs = [*inputs, *_all_tops(layers)]
    missing = [name for name in outputs if name not in blobs]
    refuse_names(source.file.name, "output", missing, blobs, _find_unread(layers))
    cuts = inputs.keys() - _declared_inputs(source).keys()
    layers = needed_nodes(layers, outputs, cuts, (lambda layer: layer.bottom, lambda layer: layer.top))
    nodes = [CaffeNode(layer, importer) for layer in layers]
    importer.refuse_unknown(nodes, explain_unknown)
    if model.inputs:
        # A network that the deployment file cuts does not need its own inputs before the cut.
        used = {port.name for port in model.inputs}.union(outputs, *(layer.bottom for layer in layers))
        inputs = {name: shape for name, shape in inputs.items() if name in used}
    _refuse_sizes(source, inputs)
    for name, shape in inputs.items():
        importer.blobs.values[name] = importer.builder.input(name, DType.F32, shape)
    for node in nodes:
        importer.blobs.bind(node.layer.top, importer.translate(node))
    return importer.finish(lambda: [importer.blobs.find(name) for name in outputs], outputs)


def port_names(files: Files) -> PortNames:
    """Return the names of the network's own inputs and outputs, in its order."""
    source = read(files)
    return tuple(_declared_inputs(source)), tuple(_find_unread(_computing_layers(source)))


def _computing_layers(source: NetworkSource) -> list[Any]:
    """Return the layers without those that only declare an input."""
    return [layer for layer in source.layers if layer.type != "Input"]


def _all_tops(layers: Sequence[Any]) -> list[str]:
    """Return the blobs that layers write, in the order of the file."""
    tops: list[str] = []
    for layer in layers:
        tops += layer.top
    return tops


def _declared_inputs(source: NetworkSource) -> dict[str, Shape]:
    """Return the network's inputs with the shapes that it gives them; () where it gives none.

    Caffe declared inputs in three ways over the years: by the field `input` with four `input_dim` for each,
    by `input` with `input_shape`, and since 2016 by layers of type Input.
    """
    net = source.net
    quadruples = [tuple(net.input_dim[i : i + 4]) for i in range(0, len(net.input_dim), 4)]
    shapes = [tuple(shape.dim) for shape in net.input_shape] or quadruples
    declared = _assign_shapes(net.input, shapes)
    for layer in source.layers:
        if layer.type == "Input":
            shapes = [tuple(shape.dim) for shape in layer.input_param.shape]
            # A single shape holds for all tops of the layer, as in Caffe's input_layer.cpp.
            declared |= _assign_shapes(layer.top, shapes * len(layer.top) if len(shapes) == 1 else shapes)
    return declared


def _assign_shapes(names: Sequence[str], shapes: Sequence[Shape]) -> dict[str, Shape]:
    """Return a shape for each name; () where there are fewer shapes."""
    return {name: shapes[i] if i < len(shapes) else () for i, name in enumerate(names)}


def _input_shapes(source: NetworkSource, model: Model) -> dict[str, Shape]:
    """Return the shapes of the inputs and of the blobs at which the deployment file cuts; () if unknown.

    A shape in the deployment file replaces that of the network: Caffe networks state a batch, and often a
    size of image, of their training.
    """
    declared = _declared_inputs(source)
    stated = {port.name: port.shape or () for port in model.inputs}
    tops = dict.fromkeys(_all_tops(source.layers))
    missing = [name for name in stated if name not in tops and name not in declared]
    refuse_names(source.file.name, "input", missing, [*declared, *tops], declared)
    inputs = {name: stated.get(name) or shape for name, shape in declared.items()}
    for name, shape in stated.items():
        inputs.setdefault(name, shape)
    if not inputs:
        remedy = "give the .prototxt of the network as it is deployed, with an Input layer"
        raise MaceError(source.file.name, "has no input", remedy)
    return inputs


def _refuse_sizes(source: NetworkSource, inputs: Mapping[str, Shape]) -> None:
    """Raise MaceError unless each input has a shape that a network can work on."""
    faults = []
    for name, shape in inputs.items():
        fault = size_fault(name, shape) if shape else f"input {name!r} has no shape"
        faults += [fault] if fault else []
    refuse_shapes(source.file.name, faults, {name: shape or None for name, shape in inputs.items()})


def _find_unread(layers: Sequence[Any]) -> list[str]:
    """Return the blobs that no layer reads after they are written last, in the order of the file.

    These are the outputs of a network for Caffe too. A dictionary keeps the order; a layer in place removes
    its blob as it reads it, and adds it again as it writes it.
    """
    unread: dict[str, bool] = {}
    for layer in layers:
        for name in layer.bottom:
            unread.pop(name, None)
        unread.update(dict.fromkeys(layer.top, True))
    return list(unread)
