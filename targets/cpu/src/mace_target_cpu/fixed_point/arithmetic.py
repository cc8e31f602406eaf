"""The arithmetic of gemmlowp's fixed-point numbers, on Python's integers: what tables are made with."""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import Array
from mace_target_cpu.quantized.rounding import split_factor

ONE = (1 << 31) - 1
"""The largest number below 1, which stands for it, with no bit before the point."""

EXP_MINUS_EIGHTH, THIRD = 1895147668, 715827883
"""exp(-1/8) and 1/3 with 31 bits behind the point."""

EXP_OF_POWERS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""exp(-2 ** k) with 31 bits behind the point, for each k (gemmlowp, fixedpoint.h: exp_on_negative_values)."""


def multiply_high(x: int, y: int) -> int:
    """Return x * y / 2 ** 31, a tie upwards."""
    return (x * y + (1 << 30)) >> 31


def shift_right(x: int, bits: int) -> int:
    """Return x / 2 ** bits, a tie away from 0."""
    mask = (1 << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def multiply_fixed(x: int, multiplier: int, shift: int) -> int:
    """Return x * multiplier * 2 ** (shift - 31), rounded as kernels do."""
    return shift_right(multiply_high(x << max(shift, 0), multiplier), max(-shift, 0))


def rescale(x: int, factor: float) -> int:
    """Return x times a factor, rounded as kernels do."""
    return multiply_fixed(x, *split_factor(factor))


def multiply_half(x: int, y: int) -> int:
    """Return x * y / 2 ** 15 of numbers of 16 bits, a tie upwards."""
    return (x * y + (1 << 14)) >> 15


def narrow_multiplier(multiplier: int) -> int:
    """Return a multiplier of 31 bits in 15."""
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)


def exp_of_negative(x: int, fraction: int) -> int:
    """Return exp(x) with 31 bits behind the point, of x <= 0 with `fraction` bits there."""
    if x == 0:
        return ONE
    quarter = 1 << (fraction - 2)
    # exp(a) of a in [-1/4, 0), times exp(-2 ** k) for each bit of what is left.
    part = (x & (quarter - 1)) - quarter
    result = _exp_within_quarter(part << (31 - fraction))
    rest = part - x
    for power, factor in EXP_OF_POWERS:
        if rest & (1 << (fraction + power)):
            result = multiply_high(result, factor)
    return result


def _exp_within_quarter(a: int) -> int:
    """Return exp(a) for a in [-1/4, 0): four terms of its series around -1/8."""
    x = a + (1 << 28)
    x2 = multiply_high(x, x)
    x3, x4 = multiply_high(x2, x), multiply_high(x2, x2)
    terms = shift_right(multiply_high(shift_right(x4, 2) + x3, THIRD) + x2, 1)
    return EXP_MINUS_EIGHTH + multiply_high(EXP_MINUS_EIGHTH, x + terms)


def round_away(values: Array) -> Array:
    """Return the nearest integers of floats, a tie away from 0, as C's round does."""
    # Of numbers below 2^23 the fraction is exact, so that adding a half cannot round; beyond, none is left.
    truncated = np.trunc(values)
    rest = values - truncated
    rounded: Array = truncated + (rest >= 0.5) - (rest <= -0.5)
    return rounded


def exp_in_single(values: Array) -> Array:
    """Return exp of float32 as C's expf gives it: the nearest number of single precision."""
    return np.array([math.exp(min(float(v), 700.0)) for v in values]).astype(np.float32)
