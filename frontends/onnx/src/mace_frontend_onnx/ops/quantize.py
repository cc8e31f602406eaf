"""Quantisation written out in real numbers, as ONNX defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType, Storage
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.quantization import output_type, real, storage
from mace_frontend_onnx.source import element_type


def _quantize(node: OnnxNode) -> Sequence[Held]:
    """saturate(round(x / scale) + zero point); round half to even."""
    _check_scale(node)
    dtype = output_type(node, 2)
    node.refuse_unless(
        not dtype.is_float, f"its result is of type {dtype.value}; only integers are supported"
    )
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


def _dequantize(node: OnnxNode) -> Sequence[Held]:
    """(x - zero point) * scale."""
    _check_scale(node)
    code = node.attr("output_dtype")
    dtype = element_type(code) if code else node.dtype(1)
    if dtype is not node.dtype(1):
        return node.done("Cast", [node.emit("Mul", _shifted(node), tag="real")], {"to": dtype.value})
    how = None if _block(node) else storage(node, 1, 2, node.dtype(0), _axis(node))
    if how and dtype is DType.F32 and (stored := _stored(node, how)):
        return node.done("Dequantize", [stored])
    return node.done("Mul", _shifted(node))


def _shifted(node: OnnxNode) -> list[str]:
    """The factors of the real numbers: steps from the zero point, and the scale."""
    x = _to_float(node, node.input(0))
    if node.has(2):
        x = node.emit("Sub", [x, _to_float(node, _along_axis(node, 2))], tag="shift")
    return [x, _along_axis(node, 1)]


def _axis(node: OnnxNode) -> int | None:
    """The axis along which several scales lie; None where one holds for all, whatever the attribute says."""
    return None if prod(node.shape(1)) == 1 else node.axis(node.attr("axis"), len(node.shape(0)))


def _block(node: OnnxNode) -> int:
    """How many elements along the axis share a scale.

    0 where they do not come in blocks (as always before operator set 21).
    """
    return int(node.attr("block_size") or 0)


def _check_scale(node: OnnxNode) -> None:
    """Refuse scales that fit neither the whole tensor, nor an axis, nor blocks, and zero points that do not fit the scales."""
    shape, scales, block = node.shape(0), node.shape(1), _block(node)
    zeros = node.shape(2) if node.has(2) else scales
    node.refuse_unless(
        zeros == scales or prod(zeros) == prod(scales) == 1, "its zero point is not of its scale's shape"
    )
    axis = _axis(node)
    if axis is None:
        return
    node.refuse_unless(block >= 0, f"its block size is {block}")
    if block:
        wanted = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
        text = f"its scale has shape {list(scales)}; blocks of {block} along axis {axis} of {list(shape)} need {list(wanted)}"
    else:
        wanted = (shape[axis],)
        text = f"its scale has shape {list(scales)}; one for each index of axis {axis} of {list(shape)} is {list(wanted)}"
    node.refuse_unless(scales == wanted, text)


def _stored(node: OnnxNode, how: Storage) -> str | None:
    """The operand if it is a constant or a tensor that is stored so already."""
    if node.array_is_constant(0):
        return real(node, 0, how)
    held = node.stored_input(0)
    return held if node.builder.tensors[held].storage == how else None


def _to_float(node: OnnxNode, tensor: str) -> str:
    """A tensor in the type of the scale."""
    return node.emit("Cast", [tensor], {"to": node.dtype(1).value}, tag="float")


def _along_axis(node: OnnxNode, index: int) -> str:
    """A scale or zero point shaped to broadcast with x: one for all, one per index of the axis, or one per block."""
    shape, given = node.shape(0), node.shape(index)
    tensor = node.input(index)
    if prod(given) == 1:
        return tensor if not given else node.emit("Reshape", [tensor], {"shape": ()}, tag="scalar")
    axis, block = node.axis(node.attr("axis"), len(shape)), _block(node)
    if not block:
        spread = tuple(given[0] if i == axis else 1 for i in range(len(shape)))
        return node.emit("Reshape", [tensor], {"shape": spread}, tag="per-channel")
    places = node.add_constant(np.arange(shape[axis]) // block, DType.I64, "blocks")
    return node.emit("Gather", [tensor, places], {"axis": axis}, tag="per-block")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
)
