"""A Caffe network as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import refuse_shapes
from mace_core.ir import DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.translation import RefusedError, Senseless, SkippedError, attempt, refuse_names
from mace_frontend_caffe.node import Node
from mace_frontend_caffe.ops import handlers
from mace_frontend_caffe.source import Source, read

MOST_ELEMENTS = 1 << 28
"""Elements of an input: 1 GiB."""

SENSELESS = Senseless("its parameters or weights", "correct the .prototxt")


class Translation:
    """A network on its way into a Builder.

    blobs: by name the tensor that was written last; None where that failed.
    """

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.blobs: dict[str, str | None] = {}
        self.faults: list[str] = []

    def blob(self, name: str) -> str:
        """The tensor of a blob."""
        if name not in self.blobs:
            raise RefusedError(f"nothing before it makes blob {name!r}; correct the .prototxt")
        tensor = self.blobs[name]
        if tensor is None:
            raise SkippedError
        return tensor

    def layer(self, layer: Any) -> None:
        """Translate one layer; a fault is noted, and what reads its tops is passed over."""
        place = f"{self.source.file.name}: layer {layer.name!r} ({layer.type})"
        made = attempt(self.faults, place, lambda: self._made(layer), SENSELESS) or [None] * len(layer.top)
        self.blobs.update(zip(layer.top, made, strict=False))

    def _made(self, layer: Any) -> Sequence[str | None]:
        node, custom = Node(layer, self), self.builder.ops.get(f"caffe::{layer.type}")
        return node.done(custom, node.inputs()) if custom else handlers()[layer.type](node)


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a network between the inputs and outputs that the deployment file names.

    Blobs that nothing reads are its outputs.

    MaceError with every fault: what is damaged, or each layer that the IR cannot represent.
    """
    source = read(files)
    work = Translation(source, Builder(model.name, {**core_ops(), **ops}))
    inputs = _inputs(source, model)
    layers = [layer for layer in source.layers if layer.type != "Input"]
    wanted = [p.name for p in model.outputs] or _unread(layers)
    blobs = [*inputs, *(t for layer in layers for t in layer.top)]
    refuse_names(
        source.file.name, "output", [name for name in wanted if name not in blobs], blobs, _unread(layers)
    )
    layers = _needed(layers, set(inputs) - _declared(source).keys(), set(wanted))
    _refuse_unknown(source, layers, work.builder.ops)
    if model.inputs:  # a network that is cut needs no input before the cut
        used = {p.name for p in model.inputs}.union(wanted, *(layer.bottom for layer in layers))
        inputs = {name: shape for name, shape in inputs.items() if name in used}
    _sized(source, inputs)
    for name, shape in inputs.items():
        work.blobs[name] = work.builder.input(name, DType.F32, shape)
    for layer in layers:
        work.layer(layer)
    if work.faults:
        raise MaceError.of(dict.fromkeys(work.faults))
    return work.builder.finish([work.blob(name) for name in wanted], wanted)


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


def _sized(source: Source, inputs: Mapping[str, Shape]) -> None:
    """MaceError unless each input has a shape that a network can work on."""
    faults = []
    for name, shape in inputs.items():
        if not shape:
            faults.append(f"input {name!r} has no shape")
        elif min(shape) < 1 or prod(shape) > MOST_ELEMENTS:
            faults.append(f"input {name!r} has a shape of {list(shape)}; state another under input_shapes")
    refuse_shapes(source.file.name, faults, {name: shape or None for name, shape in inputs.items()})


def _unread(layers: Sequence[Any]) -> list[str]:
    """Blobs that no layer reads after they are written last, in the order of the file."""
    last: dict[str, bool] = {}
    for layer in layers:
        for name in layer.bottom:
            last.pop(name, None)
        last.update(dict.fromkeys(layer.top, True))
    return list(last)


def _needed(layers: Sequence[Any], cuts: set[str], outputs: set[str]) -> list[Any]:
    """The layers that compute the outputs; blobs where the network is cut are given."""
    kept, wanted = [], set(outputs)
    for layer in reversed(layers):
        if wanted & set(layer.top) - cuts:
            kept.append(layer)
            wanted |= set(layer.bottom)
    return kept[::-1]


def _refuse_unknown(source: Source, layers: Sequence[Any], ops: Mapping[str, Op]) -> None:
    """Raise one MaceError for all layers that nothing here knows."""
    unknown = [
        layer for layer in layers if layer.type not in handlers() and f"caffe::{layer.type}" not in ops
    ]
    remedy = "cut the graph before it with output_tensors, or add it by a plugin"
    faults = [
        f"{source.file.name}: layer {layer.name!r}: type {layer.type!r} is not supported; {remedy}"
        for layer in unknown
    ]
    if faults:
        raise MaceError.of(faults)
