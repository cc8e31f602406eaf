"""Quantisation written out in real numbers, as ONNX defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_onnx.node import Held, Node
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.source import element_type


def _quantize(node: Node) -> Sequence[Held]:
    """saturate(round(x / scale) + zero point); round half to even."""
    code = node.attr("output_dtype")
    dtype = node.dtype(2) if node.has(2) else element_type(code) if code else DType.U8
    node.refuse_unless(not dtype.is_float, f"its result is of type {dtype.value}; only integers are supported")
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
    x = _to_float(node, node.input(0))
    if node.has(2):
        x = node.emit("Sub", [x, _to_float(node, _along_axis(node, 2))], tag="shift")
    return node.done("Mul", [x, _along_axis(node, 1)])


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
