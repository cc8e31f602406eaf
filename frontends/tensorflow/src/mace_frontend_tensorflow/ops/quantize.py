"""Fake quantization: ranges that training chose, imported as Quantize and Dequantize.

Formulas: tensorflow/core/kernels/fake_quant_ops_functor.h, quantize_and_dequantize_op.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType, Quant, Storage
from mace_core.quantization import dequantize, quantize
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import Constant, OptionalValue

MIN_SCALE = np.float32(1e-30)
"""Stands for the scale of a channel that holds nothing but zeros."""

MIN_BITS, MAX_BITS = 2, 16
"""Bits of fake quantization: those that TensorFlow's kernels accept (fake_quant_ops.cc)."""


@dataclass(frozen=True)
class _Range:
    """Which numbers can be stored, and in which form.

    storage: the integer type with its quantization.
    low, high: the bounds as real numbers, of the tensor or of each channel along the quantization's axis.
    is_full: whether the bounds are those of the integer type.
    """

    storage: Storage
    low: Array
    high: Array
    is_full: bool


def _fake_quant(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a FakeQuantWithMinMaxArgs(x), ...Vars(x, min, max) or ...VarsPerChannel(x, min, max)."""
    if node.op == "FakeQuantWithMinMaxArgs":
        low = np.asarray(node.attr("min", -6.0), np.float32)
        high = np.asarray(node.attr("max", 6.0), np.float32)
    else:
        low, high = _constant_range(node)
    is_per_channel = node.op.endswith("PerChannel")
    node.refuse_unless(
        low.ndim == high.ndim == int(is_per_channel),
        f"its range has shapes {list(low.shape)} and {list(high.shape)}",
    )
    # TensorFlow has a range for each element of the last axis alone.
    axis = node.rank(0) - 1 if is_per_channel else None
    bits, narrow = node.attr("num_bits", 8), node.attr("narrow_range", False)
    _check_bits(node, bits)
    return _store(node, _nudge_range(low, high, (bits, narrow), axis))


def _constant_range(node: TensorFlowNode) -> tuple[Array, Array]:
    """Return operands 1 and 2 as the bounds of a range."""
    low, high = node.constant(1, "minimum"), node.constant(2, "maximum")
    return np.asarray(low, np.float32), np.asarray(high, np.float32)


def _check_bits(node: TensorFlowNode, bits: int) -> None:
    node.refuse_unless(
        MIN_BITS <= bits <= MAX_BITS, f"{bits} bits are not supported", f"train with {MIN_BITS} to {MAX_BITS}"
    )


def _nudge_range(low: Array, high: Array, form: tuple[int, bool], axis: int | None) -> _Range:
    """Return a range moved so that zero is stored exactly (Nudge in fake_quant_ops_functor.h).

    form: bits, and whether the lowest integer is left out.
    """
    bits, narrow = form
    is_empty = (low == 0) & (high == 0)
    if not (((low <= 0) & (high >= 0) & (low < high)) | is_empty).all():
        raise RefusedError(
            f"its range from {low.tolist()} to {high.tolist()} does not hold zero; "
            "train the model with one that does"
        )
    first, last = np.float32(narrow), np.float32(2**bits - 1)
    # Single precision and the rounding of halves upwards are those of the kernel: another zero point would
    # move the whole tensor by one step.
    scale = np.where(is_empty, MIN_SCALE, (high - low) / (last - first)).astype(np.float32)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    # The kernel counts from 0 to 2**bits - 1, the IR stores signed integers.
    half = 2 ** (bits - 1)
    return _make_range(scale, zero - half, (int(first) - half, half - 1), axis)


def _make_range(scale: Array, zero: Array, bounds: tuple[int, int], axis: int | None) -> _Range:
    """Return the range of the integers between two bounds, in the smallest type that holds them."""
    if bounds[0] == 0:
        dtype = DType.U16 if bounds[1] > np.iinfo(np.uint8).max else DType.U8
    else:
        dtype = DType.I16 if bounds[1] > np.iinfo(np.int8).max else DType.I8
    limits = np.iinfo(dtype.numpy)
    scales, zeros = scale.astype(np.float64).reshape(-1), zero.astype(np.int64).reshape(-1)
    quant = Quant(tuple(scales.tolist()), tuple(zeros.tolist()), axis)
    low, high = ((bound - zero.astype(np.float64)) * scale for bound in bounds)
    return _Range(Storage(dtype, quant), low, high, (limits.min, limits.max) == bounds)


def _quantize_and_dequantize(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a QuantizeAndDequantizeV2(x, min, max) or V3(x, min, max, bits): integers without zero point."""
    has_operand = node.op == "QuantizeAndDequantizeV3"
    bits = node.integer(3, "number of bits") if has_operand else node.attr("num_bits", 8)
    _check_bits(node, bits)
    node.refuse_unless(
        node.attr("round_mode", "HALF_TO_EVEN") == "HALF_TO_EVEN",
        "it does not round halves to even integers",
        CUT_BEFORE,
    )
    axis_attr = node.attr("axis", -1)
    # -1 is the default and means a single range, not the last axis.
    axis = None if axis_attr == -1 else node.axis(axis_attr, node.rank(0))
    if node.attr("range_given", False):
        low, high = _constant_range(node)
    else:
        others = tuple(i for i in range(node.rank(0)) if i != axis)
        array = node.constant(0, "array, whose range is not stated,")
        low = np.asarray(np.minimum(array.min(others), 0))
        high = np.asarray(np.maximum(array.max(others), 0))
    node.refuse_unless(
        low.ndim == high.ndim == (axis is not None),
        f"its range has shapes {list(low.shape)} and {list(high.shape)}",
    )
    bounds = _symmetric_bounds(bits, node.attr("signed_input", True), node.attr("narrow_range", False))
    scale = _symmetric_scale(low, high, bounds)
    return _store(node, _make_range(scale, np.zeros_like(scale), bounds, axis))


def _symmetric_bounds(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    if not signed:
        return 0, 2**bits - 1
    last = 2 ** (bits - 1) - 1
    return (-last if narrow else -last - 1), last


def _symmetric_scale(low: Array, high: Array, bounds: tuple[int, int]) -> Array:
    """Return the scale with which both ends of the range are within the bounds, and zero is 0."""
    first, last = bounds
    # A side without numbers has no part in the scale; its quotient is 0 / 0 or negative, and is not used.
    with np.errstate(all="ignore"):
        edge = first or -np.inf
        low_scale = np.where(low * edge > 0, low / edge, 0)
        high_scale = np.where(high * last > 0, high / last, 0)
    scale: Array = np.maximum(np.maximum(low_scale, high_scale), MIN_SCALE).astype(np.float32)
    return scale


def _store(node: TensorFlowNode, chosen: _Range) -> Sequence[OptionalValue]:
    """Return operand 0 stored in a range.

    A constant is quantized here and keeps its integers, which may still move to another layout.
    """
    storage = chosen.storage
    if node.array_is_constant(0):
        array = np.asarray(node.constant(0, "array"), np.float64)
        integers = quantize(np.clip(array, chosen.low, chosen.high), storage)
        real = dequantize(integers, storage.quant).astype(np.float32)
        quantized = (integers, storage.quant)
        return [Constant(node.name, DType.F32, array.shape, lambda: real, quantized=quantized)]
    tensor = node.input(0)
    if not chosen.is_full:
        tensor = _clip_to_range(node, tensor, chosen)
    return node.done("Dequantize", [node.emit_stored("Quantize", [tensor], storage, "stored")])


def _clip_to_range(node: TensorFlowNode, tensor: str, chosen: _Range) -> str:
    """Return the tensor within the range: the integer type holds more, as with 6 bits in int8."""
    if chosen.low.ndim == 0:
        attrs = {"min": float(chosen.low), "max": float(chosen.high)}
        return node.emit("Clip", [tensor], attrs, tag="range")
    low = node.add_constant(chosen.low, DType.F32, "end")
    high = node.add_constant(chosen.high, DType.F32, "end")
    return node.emit("Maximum", [node.emit("Minimum", [tensor, high], tag="below"), low], tag="range")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "FakeQuantWithMinMaxArgs": _fake_quant,
        "FakeQuantWithMinMaxVars": _fake_quant,
        "FakeQuantWithMinMaxVarsPerChannel": _fake_quant,
        "QuantizeAndDequantizeV2": _quantize_and_dequantize,
        "QuantizeAndDequantizeV3": _quantize_and_dequantize,
        "QuantizeAndDequantizeV4": _quantize_and_dequantize,
    }
)
