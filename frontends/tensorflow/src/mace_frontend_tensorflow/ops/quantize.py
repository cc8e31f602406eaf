"""Ranges that training found for numbers to be stored in: kept as Quantize, then Dequantize.

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
from mace_frontend_tensorflow.held import Constant, Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

LEAST = np.float32(1e-30)
"""Stands for the scale of a channel that holds nothing but zeros."""


@dataclass(frozen=True)
class _Range:
    """Which numbers can be stored, and how.

    low, high: the ends in real numbers, of the tensor or of each channel along `axis`.

    full: whether these are all that the integers reach.
    """

    storage: Storage
    low: Array
    high: Array
    full: bool


def _fake(node: TensorFlowNode) -> Sequence[Held]:
    """FakeQuantWithMinMaxVars(x, least, greatest).

    The ends are numbers, numbers for each channel, or attributes.
    """
    if node.op == "FakeQuantWithMinMaxArgs":
        ends = [
            np.asarray(node.attr(name, default), np.float32)
            for name, default in (("min", -6.0), ("max", 6.0))
        ]
    else:
        ends = [
            np.asarray(node.constant(i, what), np.float32)
            for i, what in ((1, "least number"), (2, "greatest number"))
        ]
    channels = node.op.endswith("PerChannel")
    axis = node.rank(0) - 1 if channels else None
    node.refuse_unless(
        all(e.ndim == int(channels) for e in ends), f"its range has shapes {[list(e.shape) for e in ends]}"
    )
    bits, narrow = node.attr("num_bits", 8), node.attr("narrow_range", False)
    node.refuse_unless(2 <= bits <= 16, f"{bits} bits are not supported; train with 2 to 16")
    return _stored(node, _nudged(ends[0], ends[1], (bits, narrow), axis))


def _nudged(low: Array, high: Array, how: tuple[int, bool], axis: int | None) -> _Range:
    """A range moved so that zero is stored exactly; how: bits, and whether the least integer is left out."""
    bits, narrow = how
    nothing = (low == 0) & (high == 0)
    if not (((low <= 0) & (high >= 0) & (low < high)) | nothing).all():
        raise RefusedError(
            f"its range from {low.tolist()} to {high.tolist()} does not hold zero; train the model with one that does"
        )
    first, last = np.float32(narrow), np.float32(2**bits - 1)
    scale = np.where(nothing, LEAST, (high - low) / (last - first)).astype(np.float32)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    return _range(scale, zero - 2 ** (bits - 1), (int(first) - 2 ** (bits - 1), 2 ** (bits - 1) - 1), axis)


def _range(scale: Array, zero: Array, ends: tuple[int, int], axis: int | None) -> _Range:
    """The range of integers between these ends."""
    unsigned = ends[0] == 0
    wide = ends[1] > (255 if unsigned else 127)
    dtype = (DType.U16 if wide else DType.U8) if unsigned else DType.I16 if wide else DType.I8
    limits = np.iinfo(dtype.numpy)
    scales, zeros = scale.astype(np.float64).reshape(-1), zero.astype(np.int64).reshape(-1)
    quant = Quant(tuple(scales.tolist()), tuple(zeros.tolist()), axis)
    low, high = ((end - zero.astype(np.float64)) * scale for end in ends)
    return _Range(Storage(dtype, quant), low, high, (limits.min, limits.max) == ends)


def _both(node: TensorFlowNode) -> Sequence[Held]:
    """QuantizeAndDequantizeV2(x, least, greatest): integers whose zero stands for zero."""
    given, along = node.attr("range_given", False), node.attr("axis", -1)
    bits = (
        node.attr("num_bits", 8)
        if node.op != "QuantizeAndDequantizeV3"
        else node.integer(3, "number of bits")
    )
    node.refuse_unless(2 <= bits <= 16, f"{bits} bits are not supported; train with 2 to 16")
    node.refuse_unless(
        node.attr("round_mode", "HALF_TO_EVEN") == "HALF_TO_EVEN",
        "halves that are not rounded to even numbers",
    )
    axis = None if along == -1 else node.axis(along, node.rank(0))
    if given:
        low, high = (
            np.asarray(node.constant(i, what), np.float32)
            for i, what in ((1, "least number"), (2, "greatest number"))
        )
    else:
        others = tuple(i for i in range(node.rank(0)) if i != axis)
        array = node.constant(0, "numbers, whose range is not given,")
        low, high = (
            np.asarray(np.minimum(array.min(others), 0)),
            np.asarray(np.maximum(array.max(others), 0)),
        )
    node.refuse_unless(
        low.ndim == high.ndim == (axis is not None),
        f"ranges of shapes {list(low.shape)} and {list(high.shape)}",
    )
    signed, narrow = node.attr("signed_input", True), node.attr("narrow_range", False)
    last = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    first = 0 if not signed else -last if narrow else -last - 1
    with np.errstate(all="ignore"):  # what lies on a side that has no numbers asks nothing of the scale
        sides = [
            np.where(end * edge > 0, end / edge, 0) for end, edge in ((low, first or -np.inf), (high, last))
        ]
    scale = np.maximum(np.maximum(*sides), LEAST).astype(np.float32)
    return _stored(node, _range(scale, np.zeros_like(scale), (first, last), axis))


def _stored(node: TensorFlowNode, found: _Range) -> Sequence[Held]:
    """The operand stored so; a constant at once, and it may still be laid out in another way."""
    held, storage = node.held(0), found.storage
    if node.array_is_constant(0):
        array = np.asarray(node.constant(0, "numbers"), np.float64)
        whole = quantize(np.clip(array, found.low, found.high), storage)
        real = dequantize(whole, storage.quant).astype(np.float32)
        return [Constant(node.name, DType.F32, array.shape, lambda: real, stored=(whole, storage.quant))]
    tensor = node.importer.tensor(held)
    if not found.full:
        tensor = _clipped(node, tensor, found)
    return node.done("Dequantize", [node.stored("Quantize", [tensor], storage, "stored")])


def _clipped(node: TensorFlowNode, tensor: str, found: _Range) -> str:
    """The tensor within the range, where its integers would reach further."""
    if found.low.ndim == 0:
        return node.emit("Clip", [tensor], {"min": float(found.low), "max": float(found.high)}, tag="range")
    low, high = (node.add_constant(end, DType.F32, "end") for end in (found.low, found.high))
    return node.emit("Maximum", [node.emit("Minimum", [tensor, high], tag="below"), low], tag="range")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(
            ("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"), _fake
        ),
        **dict.fromkeys(
            ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4"), _both
        ),
    }
)
