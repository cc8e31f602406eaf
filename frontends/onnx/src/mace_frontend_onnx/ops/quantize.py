"""QuantizeLinear and DequantizeLinear: the IR's ops where scales are constants, else real arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType, Storage
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.model_file import element_type
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.quantization import find_storage, output_dtype, quantized_input


def _quantize(node: OnnxNode) -> Sequence[Result]:
    """Compute saturate(round(x / scale) + zero point); round half to even."""
    _check_scale(node)
    dtype = output_dtype(node, 2)
    problem = f"its result is of type {dtype.value}; only integers are supported"
    node.refuse_unless(not dtype.is_float, problem)
    if node.dtype(0) is DType.F32 and (storage := find_storage(node, 1, 2, dtype)):
        return node.done_quantized("Quantize", [node.input(0)], storage)
    # QuantizeLinear takes int32 and half precision as well.
    operands = [_to_float(node, node.input(0)), _to_float(node, _along_axis(node, 1))]
    zero = _to_float(node, _along_axis(node, 2)) if node.has(2) else ""
    # One behind the other, so that a target can compute them as one.
    steps = node.emit("Round", [node.emit("Div", operands, tag="steps")], tag="round")
    if zero:
        steps = node.emit("Add", [steps, zero], tag="shift")
    limits = np.iinfo(dtype.numpy)
    clipped = node.emit("Clip", [steps], {"min": float(limits.min), "max": float(limits.max)}, tag="saturate")
    return node.done("Cast", [clipped], {"to": dtype.value})


def _dequantize(node: OnnxNode) -> Sequence[Result]:
    """Compute (x - zero point) * scale."""
    _check_scale(node)
    # DequantizeLinear: from operator set 23 on the result may have another type than the scale.
    code = node.attr("output_dtype")
    dtype = element_type(code) if code else node.dtype(1)
    if dtype is not DType.F32:
        return node.done("Cast", [node.emit("Mul", _factors(node), tag="real")], {"to": dtype.value})
    # Constants of four bits are read as those of eight.
    integer = DType.of(node.constant(0, "integers")) if node.is_constant(0) else node.dtype(0)
    # The IR has no scales in blocks.
    storage = None if _block_size(node) else find_storage(node, 1, 2, integer, _axis(node))
    if storage and node.dtype(1) is DType.F32 and (tensor := _quantized_operand(node, storage)):
        return node.done("Dequantize", [tensor])
    return node.done("Mul", _factors(node))


def _factors(node: OnnxNode) -> list[str]:
    """Return the factors of the real numbers: steps from the zero point, and the scale."""
    x = _to_float(node, node.input(0))
    if node.has(2):
        x = node.emit("Sub", [x, _to_float(node, _along_axis(node, 2))], tag="shift")
    return [x, _to_float(node, _along_axis(node, 1))]


def _axis(node: OnnxNode) -> int | None:
    """Return the axis of several scales; None where one holds for all."""
    # With one scale the attribute means nothing, so exporters leave it at 1 for tensors of any rank.
    return None if prod(node.shape(1)) == 1 else _stated_axis(node)


def _stated_axis(node: OnnxNode) -> int:
    # Operators of ONNX Runtime have no schema to look the default up in; it is the same (quantize_linear.cc).
    return node.axis(node.attr_or("axis", 1), len(node.shape(0)))


def _block_size(node: OnnxNode) -> int:
    """Return how many elements along the axis share a scale; 0 where scales do not come in blocks."""
    # QuantizeLinear, DequantizeLinear: `block_size` exists from operator set 21 on.
    return int(node.attr("block_size") or 0)


def _check_scale(node: OnnxNode) -> None:
    """Refuse scales that fit neither an axis nor its blocks, and zero points that do not fit the scales."""
    shape, scales, block = node.shape(0), node.shape(1), _block_size(node)
    zeros = node.shape(2) if node.has(2) else scales
    is_fitting = zeros == scales or prod(zeros) == prod(scales) == 1
    node.refuse_unless(is_fitting, "its zero point is not of its scale's shape")
    axis = _axis(node)
    if axis is None:
        return
    node.refuse_unless(block >= 0, f"its block size is {block}")
    text = f"its scale has shape {list(scales)}"
    if block:
        expected = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
        text += f"; blocks of {block} along axis {axis} of {list(shape)} need {list(expected)}"
    else:
        expected = (shape[axis],)
        text += f"; one for each index of axis {axis} of {list(shape)} is {list(expected)}"
    node.refuse_unless(scales == expected, text)


def _quantized_operand(node: OnnxNode, storage: Storage) -> str | None:
    """Return input 0 as a quantized tensor, if it is a constant or is quantized so already."""
    if node.is_constant(0):
        return quantized_input(node, 0, storage)
    tensor = node.raw_input(0)
    return tensor if node.builder.tensors[tensor].storage == storage else None


def _to_float(node: OnnxNode, tensor: str) -> str:
    """Return a tensor in single precision."""
    # Not in the type of the scale: half precision holds no integers above 2048 exactly, and ONNX Runtime
    # computes in single precision too (core/util/qmath.h).
    if node.builder.tensors[tensor].dtype is DType.F32:
        return tensor
    return node.emit("Cast", [tensor], {"to": DType.F32.value}, tag="float")


def _along_axis(node: OnnxNode, index: int) -> str:
    """Return a scale or zero point that broadcasts with x: one, one per channel, or one per block."""
    shape, scales = node.shape(0), node.shape(index)
    tensor = node.input(index)
    if prod(scales) == 1:
        return node.emit("Reshape", [tensor], {"shape": ()}, tag="scalar") if scales else tensor
    axis, block = _stated_axis(node), _block_size(node)
    if not block:
        per_channel = tuple(scales[0] if i == axis else 1 for i in range(len(shape)))
        return node.emit("Reshape", [tensor], {"shape": per_channel}, tag="per-channel")
    # The last block may be shorter, so scales are not simply repeated.
    blocks = node.add_constant(np.arange(shape[axis]) // block, DType.I64, "blocks")
    return node.emit("Gather", [tensor, blocks], {"axis": axis}, tag="per-block")


OPERATORS = MappingProxyType({"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize})

# Those of com.microsoft are ONNX's with more types: before operator set 21 a quantizer has no other ones for
# integers of four and sixteen bits.
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**OPERATORS, **{f"com.microsoft::{name}": handler for name, handler in OPERATORS.items()}}
)
