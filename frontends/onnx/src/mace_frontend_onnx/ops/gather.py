"""Operators that pick or place elements by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _along_axis(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Held]:
        return node.done(
            op, [node.input(0), node.input(1)], {"axis": node.axis(node.attr("axis"), len(node.shape(0)))}
        )

    return handle


def _gather_nd(node: OnnxNode) -> Sequence[Held]:
    batch = node.attr("batch_dims") if node.opset >= 12 else 0
    return node.done("GatherND", [node.input(0), node.input(1)], {"batch_dims": batch})


def _reduction(node: OnnxNode) -> str:
    return str(node.attr("reduction") or "none")


def _scatter_elements(node: OnnxNode) -> Sequence[Held]:
    attrs = {"axis": node.axis(node.attr("axis"), len(node.shape(0))), "reduction": _reduction(node)}
    return node.done("ScatterElements", [node.input(i) for i in range(3)], attrs)


def _scatter_nd(node: OnnxNode) -> Sequence[Held]:
    return node.done("ScatterND", [node.input(i) for i in range(3)], {"reduction": _reduction(node)})


def _tensor_scatter(node: OnnxNode) -> Sequence[Held]:
    """Updates of a cache, from a position along the axis on that every first axis has of its own."""
    cache, update = node.shape(0), node.shape(1)
    axis = node.axis(node.attr("axis"), len(cache))
    node.refuse_unless(axis > 0, "its axis is that of the batch")
    count = update[axis]
    along = [count if i == axis else 1 for i in range(len(cache))]
    places = node.add_constant(np.arange(count).reshape(along), DType.I64, "places")
    if node.has(2):
        first = node.emit("Cast", [node.input(2)], {"to": DType.I64.value}, tag="first")
        starts = node.emit("Reshape", [first], {"shape": (cache[0], *(1,) * (len(cache) - 1))}, tag="starts")
        places = node.emit("Add", [places, starts], tag="moved")
    if node.attr("mode") == "circular":
        places = node.emit("Mod", [places, node.add_constant(cache[axis], DType.I64, "length")], tag="around")
    places = node.emit("Expand", [places], {"shape": update}, tag="indices")
    return node.done("ScatterElements", [node.input(0), places, node.input(1)], {"axis": axis})


def _one_hot(node: OnnxNode) -> Sequence[Held]:
    (depth,) = node.ints(1, "depth")
    indices = node.input(0)
    if node.dtype(0).is_float:
        indices = node.emit("Cast", [indices], {"to": DType.I64.value}, tag="indices")
    return node.done("OneHot", [indices, node.input(2)], {"depth": depth, "axis": node.attr("axis")})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Gather": _along_axis("Gather"),
        "GatherElements": _along_axis("GatherElements"),
        "GatherND": _gather_nd,
        "OneHot": _one_hot,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "TensorScatter": _tensor_scatter,
    }
)
