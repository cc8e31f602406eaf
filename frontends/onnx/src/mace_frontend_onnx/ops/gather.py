"""Operators that pick or place elements by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _gather(op: str) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Result]:
        axis = node.axis(node.attr("axis"), len(node.shape(0)))
        return node.done(op, [node.input(0), node.input(1)], {"axis": axis})

    return handle


def _gather_nd(node: OnnxNode) -> Sequence[Result]:
    # GatherND: batch_dims exists from operator set 12 on.
    batch = node.attr("batch_dims") if node.opset >= 12 else 0
    return node.done("GatherND", [node.input(0), node.input(1)], {"batch_dims": batch})


def _reduction(node: OnnxNode) -> str:
    # ScatterElements, ScatterND: the attribute exists from operator set 16 on; before, elements are replaced.
    return str(node.attr("reduction") or "none")


def _scatter_elements(node: OnnxNode) -> Sequence[Result]:
    attrs = {"axis": node.axis(node.attr("axis"), len(node.shape(0))), "reduction": _reduction(node)}
    return node.done("ScatterElements", [node.input(i) for i in range(3)], attrs)


def _scatter_nd(node: OnnxNode) -> Sequence[Result]:
    return node.done("ScatterND", [node.input(i) for i in range(3)], {"reduction": _reduction(node)})


def _tensor_scatter(node: OnnxNode) -> Sequence[Result]:
    """Write updates into a cache, each batch from a position of its own along an axis."""
    cache, update = node.shape(0), node.shape(1)
    axis = node.axis(node.attr("axis"), len(cache))
    node.refuse_unless(axis > 0, "its axis is that of the batch")
    length = update[axis]
    steps_shape = [length if i == axis else 1 for i in range(len(cache))]
    positions = node.add_constant(np.arange(length).reshape(steps_shape), DType.I64, "places")
    # TensorScatter: without write_indices every batch is written from position 0 on.
    if node.has(2):
        starts_shape = (cache[0], *(1,) * (len(cache) - 1))
        first = node.emit("Cast", [node.input(2)], {"to": DType.I64.value}, tag="first")
        starts = node.emit("Reshape", [first], {"shape": starts_shape}, tag="starts")
        positions = node.emit("Add", [positions, starts], tag="moved")
    if node.attr("mode") == "circular":
        size = node.add_constant(cache[axis], DType.I64, "length")
        positions = node.emit("Mod", [positions, size], tag="around")
    indices = node.emit("Expand", [positions], {"shape": update}, tag="indices")
    return node.done("ScatterElements", [node.input(0), indices, node.input(1)], {"axis": axis})


def _one_hot(node: OnnxNode) -> Sequence[Result]:
    (depth,) = node.ints(1, "depth")
    indices = node.input(0)
    # OneHot takes indices of any number type, and casts them to int64 before use.
    if node.dtype(0).is_float:
        indices = node.emit("Cast", [indices], {"to": DType.I64.value}, tag="indices")
    return node.done("OneHot", [indices, node.input(2)], {"depth": depth, "axis": node.attr("axis")})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Gather": _gather("Gather"),
        "GatherElements": _gather("GatherElements"),
        "GatherND": _gather_nd,
        "OneHot": _one_hot,
        # Scatter is what ScatterElements was called before operator set 11.
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "TensorScatter": _tensor_scatter,
    }
)
