"""The ways to turn an exact sum into steps of the result, for each rule of `numerics`."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.numerics import Numerics
from mace_target_cpu.quantized.storage import EIGHT_BITS, Scale


class Rounding(IntEnum):
    """How sums are multiplied and rounded; the ROUND_ constants of requantize.h.in.

    SINGLE: by a factor in single precision, to the nearest, a tie to the even one.
    FIXED: by a multiplier of 31 bits and a shift. The product is rounded to its upper 32 bits, a tie upwards,
    and again where a shift to the right remains, a tie away from 0 (gemmlowp, fixedpoint.h:
    SaturatingRoundingDoublingHighMul, RoundingDivideByPOT).
    DOUBLE: by a factor in double precision, to the nearest, a tie away from 0.
    """

    SINGLE = 0
    FIXED = 1
    DOUBLE = 2


SHIFT_LIMIT = 31
"""Bits by which a multiplier is shifted to the right at most; what is smaller counts as 0."""


def choose_rounding(node: Node, lowering: Lowering) -> Rounding:
    """Return how the sums of a convolution or matrix product are rounded.

    Refused for operands for which the rule of the graph is not known.
    """
    if lowering.numerics is not Numerics.FIXED_POINT:
        return Rounding.SINGLE
    x, w, y = (lowering.tensors[name] for name in (*node.inputs[:2], *node.outputs))
    types = {x.dtype, w.dtype, y.dtype}
    if any(t not in EIGHT_BITS for t in types) or x.dtype is not y.dtype:
        reason = f"{node.op.name} of {x.dtype.value} and {w.dtype.value} to {y.dtype.value} is not imitated"
        raise refuse_rule(lowering, reason)
    # LiteRT's FULLY_CONNECTED has left multipliers (reference/integer_ops/fully_connected.h); its
    # BATCH_MATMUL has not.
    is_product = node.op.name == "MatMul" and lowering.constant(node.inputs[1]) is not None
    return Rounding.DOUBLE if is_product else Rounding.FIXED


def refuse_rule(lowering: Lowering, reason: str) -> Refused:
    """Return the refusal of a node that the rule of the deployment file does not reach."""
    remedy = f"leave numerics: {lowering.numerics.value} out"
    return Refused(f"numerics: {lowering.numerics.value}: {reason}", code="quantization", remedy=remedy)


def multiply_scales(node: Node, x: Tensor, w: Array, rounding: Rounding) -> Array:
    """Return the real number that one step of a sum stands for, in float64, for each output channel.

    w: the scales of the weights.
    """
    step = Scale.from_tensor(x).step
    # GetQuantizedConvolutionMultipler (kernels/kernel_util.cc) multiplies floats; for convolutions of int8
    # its caller multiplies doubles.
    if rounding is Rounding.FIXED and (x.dtype is DType.U8 or node.op.name == "MatMul"):
        return (np.float32(step) * np.asarray(w, np.float32)).astype(np.float64)
    return np.asarray(step * w, np.float64)


def encode_factors(factors: Array, rounding: Rounding) -> Array:
    """Return factors [n] as kernels read them: float32 [n], int32 [n, 2] or float64 [n]."""
    if rounding is Rounding.FIXED:
        return np.array([split_factor(float(f)) for f in factors.reshape(-1)], np.int32).reshape(-1, 2)
    return factors.astype(np.float64 if rounding is Rounding.DOUBLE else np.float32)


def split_factor(factor: float) -> tuple[int, int]:
    """Return the multiplier and the shift of a factor: multiplier * 2 ** (shift - 31)."""
    # QuantizeMultiplier of LiteRT (kernels/internal/quantization_util.cc).
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    return (multiplier, shift) if multiplier and shift >= -SHIFT_LIMIT else (0, 0)
