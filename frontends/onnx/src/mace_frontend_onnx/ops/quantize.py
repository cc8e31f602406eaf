"""Quantisation written out in real numbers, as ONNX defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType, Storage
from mace_frontend_onnx.node import Held, Node
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.quantization import output_type, real, storage


def _quantize(node: Node) -> Sequence[Held]:
    """saturate(round(x / scale) + zero point); round half to even."""
    dtype = output_type(node, 2)
    node.refuse_unless(not dtype.is_float, f"its result is of type {dtype.value}; only integers are supported")
    if node.dtype(0) is DType.F32 and (how := storage(node, 1, 2, dtype)):
        return node.done_stored("Quantize", [node.input(0)], how)
    x = node.input(0)
    if not node.dtype(0).is_float:
        x = _to_float(node, x)
    steps = node.emit("Round", [node.emit("Div", [x, _along_axis(node, 1)], tag="steps")], tag="round")
    if node.has(2):
        steps = node.emit("Add", [steps, _to_float(node, _along_axis(node, 2))], tag="shift")
    limits = np.iinfo(dtype.numpy)
    clipped = node.emit("Clip", [steps], {"min": float(limits.min), "max": float(limits.max)}, tag="saturate")
    return node.done("Cast", [clipped], {"to": dtype.value})


def _dequantize(node: Node) -> Sequence[Held]:
    """(x - zero point) * scale."""
    rank = len(node.shape(0))
    axis = node.axis(node.attr("axis"), rank) if rank and len(node.shape(1)) else None
    if node.dtype(1) is DType.F32 and (how := storage(node, 1, 2, node.dtype(0), axis)) and (stored := _stored(node, how)):
        return node.done("Dequantize", [stored])
    x = _to_float(node, node.input(0))
    if node.has(2):
        x = node.emit("Sub", [x, _to_float(node, _along_axis(node, 2))], tag="shift")
    return node.done("Mul", [x, _along_axis(node, 1)])


def _stored(node: Node, how: Storage) -> str | None:
    """The operand if it is a constant or a tensor that is stored so already."""
    if node.array_is_constant(0):
        return real(node, 0, how)
    held = node.stored_input(0)
    return held if node.build.tensors[held].storage == how else None


def _to_float(node: Node, tensor: str) -> str:
    """A tensor in the type of the scale."""
    return node.emit("Cast", [tensor], {"to": node.dtype(1).value}, tag="float")


def _along_axis(node: Node, index: int) -> str:
    """A scale or zero point shaped to broadcast with x: one for all, one per index of the axis, or one per block."""
    shape, given = node.shape(0), node.shape(index)
    tensor = node.input(index)
    if prod(given) == 1:
        return tensor if not given else node.emit("Reshape", [tensor], {"shape": ()}, tag="scalar")
    axis = node.axis(node.attr("axis"), len(shape))
    if len(given) == 1:
        spread = tuple(given[0] if i == axis else 1 for i in range(len(shape)))
        return node.emit("Reshape", [tensor], {"shape": spread}, tag="per-channel")
    block = node.attr("block_size") or -(-shape[axis] // given[axis])
    places = node.weight(np.arange(shape[axis]) // block, DType.I64, "blocks")
    return node.emit("Gather", [tensor, places], {"axis": axis}, tag="per-block")


HANDLERS: Mapping[str, Handler] = MappingProxyType({"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize})
