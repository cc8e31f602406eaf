"""A model's inputs and outputs as the deployment file wants them: order of axes, element type, name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mace_core.build import Builder
from mace_core.deployment import Model, Port
from mace_core.ir import Array, Graph, Shape, Tensor
from mace_core.ops.op import Perm

IMAGE_ORDERS = ("NHWC", "NCHW")
TO_CHANNELS_FIRST: Perm = (0, 3, 1, 2)
TO_CHANNELS_LAST: Perm = (0, 2, 3, 1)


def in_source_order(model: Model, order: str) -> Model:
    """The model with the shapes of its inputs in the order of axes that the framework uses, as its frontend wants them."""
    return replace(model, inputs=tuple(replace(p, shape=_source_shape(p, order)) for p in model.inputs))


def as_stated(graph: Graph, model: Model, order: str) -> Graph:
    """The graph with the inputs and outputs that the deployment file states, converting at the edges.

    order: of the framework's own axes.
    """
    inputs = {p.name: p for p in model.inputs}
    outputs = {p.name: p for p in model.outputs}
    if all(_agrees(p, graph.tensors.get(p.name), order) for p in (*model.inputs, *model.outputs)):
        return graph
    new = Builder(graph.name)
    new.storages = {n: t.storage for n, t in graph.tensors.items() if t.storage}
    now = {name: _entry(new, graph.tensors[name], inputs.get(name), order) for name in graph.inputs}
    for name, array in graph.weights.items():
        new.weights[name], new.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        new.add(node.op, [now.get(i, i) for i in node.inputs], node.attrs, outputs=node.outputs, like=node)
    made = [_exit(new, now.get(name, name), outputs.get(name), order) for name in graph.outputs]
    return new.finish(made, [_public(outputs.get(n), n) for n in graph.outputs])


def to_framework(arrays: Mapping[str, Array], model: Model, order: str) -> dict[str, Array]:
    """Inputs as the deployment file states them, with the names and the order of axes that the framework knows."""
    ports = {_public(p, p.name): p for p in model.inputs}
    return {ports[n].name if n in ports else n: _turned(a, ports.get(n), order, inverse=True) for n, a in arrays.items()}


def from_framework(arrays: Mapping[str, Array], model: Model, order: str) -> dict[str, Array]:
    """Outputs of the framework as the deployment file states them."""
    ports = {p.name: p for p in model.outputs}
    return {_public(ports.get(n), n): _turned(a, ports.get(n), order) for n, a in arrays.items()}


def _turned(array: Array, port: Port | None, order: str, *, inverse: bool = False) -> Array:
    perm = _perm(port, array.ndim, order)
    return array if perm is None else np.transpose(array, _inverse(perm) if inverse else perm)


def _agrees(port: Port, tensor: Tensor | None, order: str) -> bool:
    if tensor is None:
        return True
    return _perm(port, len(tensor.shape), order) is None and port.dtype in (None, tensor.dtype) and not port.alias


def _perm(port: Port | None, rank: int, order: str) -> Perm | None:
    """How to permute a tensor in the framework's order to the stated order; None if they are the same."""
    if port is None or rank != len(TO_CHANNELS_LAST) or port.order not in IMAGE_ORDERS or port.order == order:
        return None
    return TO_CHANNELS_LAST if port.order == "NHWC" else TO_CHANNELS_FIRST


def stated_shape(port: Port, order: str) -> Shape | None:
    """Return the shape that the deployment file states for a port whose shape is in the framework's order of axes."""
    perm = _perm(port, len(port.shape or ()), order)
    return port.shape if port.shape is None or perm is None else tuple(port.shape[i] for i in perm)


def _source_shape(port: Port, order: str) -> Shape | None:
    perm = _perm(port, len(port.shape or ()), order)
    return port.shape if port.shape is None or perm is None else tuple(port.shape[i] for i in _inverse(perm))


def _inverse(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _public(port: Port | None, name: str) -> str:
    return (port.alias if port else None) or name


def _entry(new: Builder, tensor: Tensor, port: Port | None, order: str) -> str:
    perm = _perm(port, len(tensor.shape), order)
    dtype = (port.dtype if port else None) or tensor.dtype
    shape = tuple(tensor.shape[i] for i in perm) if perm else tensor.shape
    name = new.input(_public(port, tensor.name), dtype, shape, tensor.quant if dtype is tensor.dtype else None)
    if perm:
        name = new.one("Transpose", [name], {"perm": _inverse(perm)})
    return name if dtype is tensor.dtype else _converted(new, name, tensor)


def _exit(new: Builder, name: str, port: Port | None, order: str) -> str:
    tensor = new.tensors[name]
    if perm := _perm(port, len(tensor.shape), order):
        name = new.one("Transpose", [name], {"perm": perm})
    if port and port.dtype not in (None, tensor.dtype):
        assert port.dtype is not None
        name = _converted(new, name, Tensor(name, port.dtype, tensor.shape))
    return name


def _converted(new: Builder, name: str, like: Tensor) -> str:
    """A tensor in the type of another: real numbers stay what they are."""
    if like.storage:
        return new.add("Quantize", [name], outputs=[new.stored(f"{like.name}.stored", like.storage)])[0]
    if new.tensors[name].quant:
        name = new.one("Dequantize", [name])
    return name if new.tensors[name].dtype is like.dtype else new.one("Cast", [name], {"to": like.dtype.value})
