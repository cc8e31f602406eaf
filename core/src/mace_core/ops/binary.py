"""Element-wise ops of two inputs, which broadcast.

Sums, differences and products of integers wrap (two's complement), as in numpy and the frameworks
(docs/operators.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.cast import convert
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, broadcast, keep, need, present, same_dtype


@dataclass(frozen=True)
class ModAttributes(Attributes):
    """fmod: whether the result has the sign of the dividend, as C's fmod; else that of the divisor."""

    fmod: bool = False


@dataclass(frozen=True)
class BitShiftAttributes(Attributes):
    """left: the direction."""

    left: bool = True


def _div(x: Array, y: Array) -> Array:
    """Divide; integers are rounded towards zero.

    An integer divided by 0 is 0, and the minimum of a type divided by -1 wraps to itself: both are traps on
    some processors, and a library must not end its application because of one input.
    """
    if x.dtype.kind == "f":
        return np.divide(x, y)
    if x.dtype.kind == "u":
        return np.where(y == 0, 0, x // np.where(y == 0, 1, y)).astype(x.dtype)
    safe = np.where((y == 0) | (y == -1), 1, y).astype(x.dtype)
    # numpy rounds quotients down, C and the frameworks towards zero: they differ where there is a remainder
    # and the signs differ.
    floor = x // safe
    quotient = floor + ((x - floor * safe != 0) & ((x < 0) != (safe < 0)))
    return np.where(y == 0, 0, np.where(y == -1, np.negative(x), quotient)).astype(x.dtype)


def _mod(x: Array, y: Array, attrs: ModAttributes) -> Array:
    """Compute the remainder, with the divisor's sign, or the dividend's for fmod; integers modulo 0 are 0."""
    remainder = np.fmod if attrs.fmod else np.mod
    if x.dtype.kind == "f":
        return remainder(x, y)
    # Division by -1 leaves no remainder, but traps on some processors for the minimum of a type.
    trivial = (y == 0) | (y == -1) if x.dtype.kind == "i" else y == 0
    return np.where(trivial, 0, remainder(x, np.where(trivial, 1, y).astype(x.dtype))).astype(x.dtype)


def _pow(x: Array, y: Array) -> Array:
    """Compute powers of floats in double precision, and integer powers of integers modulo their range.

    A negative power of an integer loses its fraction: it is 0, except for powers of 1 and -1.
    """
    if x.dtype.kind == "f" or y.dtype.kind == "f":
        power = np.power(x.astype(np.float64), y.astype(np.float64))
        return power.astype(x.dtype) if x.dtype.kind == "f" else convert(power, DType.of(x))
    x, y = np.broadcast_arrays(x, y)
    # By repeated squaring in 64 unsigned bits, which wrap by definition; the low bits are those of any
    # narrower or signed type.
    base, exponent = x.astype(np.int64).astype(np.uint64), y.astype(np.int64).astype(np.uint64)
    power = np.ones_like(base)
    while exponent.any():
        power = np.where(exponent & np.uint64(1), power * base, power)
        base, exponent = base * base, exponent >> np.uint64(1)
    odd = y.astype(np.int64) & 1 == 1
    minus_one = x == -1 if x.dtype.kind == "i" else np.zeros(x.shape, bool)
    fraction = np.where(x == 1, 1, np.where(minus_one, np.where(odd, -1, 1), 0))
    return np.where(y < 0, fraction.astype(x.dtype), power.astype(x.dtype)).astype(x.dtype)


def _shift(x: Array, y: Array, attrs: BitShiftAttributes) -> Array:
    """Shift bits; a negative count, or one of all bits or more, leaves only the sign."""
    return np.left_shift(x, y) if attrs.left else np.right_shift(x, y)


def _prelu(x: Array, slope: Array) -> Array:
    return np.where(x < 0, x * slope, x).astype(x.dtype)


ARITHMETIC: Mapping[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _div,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "PRelu": _prelu,
}
COMPARISONS: Mapping[str, Callable[..., Array]] = {
    "Equal": np.equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
}
LOGICAL: Mapping[str, Callable[..., Array]] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
BITWISE: Mapping[str, Callable[..., Array]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


def _shape(inputs: Inputs) -> tuple[int, ...]:
    return broadcast(t.shape for t in present(inputs))


def _infer_arithmetic(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    same_dtype(inputs)
    dtype = present(inputs)[0].dtype
    need(dtype is not DType.BOOL, "its inputs are bool; they must be numbers")
    return [(dtype, _shape(inputs))]


def _infer_pow(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    return [(present(inputs)[0].dtype, _shape(inputs))]


def _infer_comparison(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    same_dtype(inputs)
    return [(DType.BOOL, _shape(inputs))]


def _infer_logical(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    need(all(t.dtype is DType.BOOL for t in present(inputs)), "its inputs must be bool")
    return [(DType.BOOL, _shape(inputs))]


def _infer_shift(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    need(present(inputs)[0].dtype is not DType.BOOL, "its inputs are bool; they must be integers")
    return _infer_bits(inputs, attrs)


def _infer_bits(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    same_dtype(inputs)
    need(not present(inputs)[0].dtype.is_float, "its inputs must be integers")
    return [(present(inputs)[0].dtype, _shape(inputs))]


OPS = (
    *(Op(n, ("x", "y"), ("z",), _infer_arithmetic, f, move=keep) for n, f in ARITHMETIC.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_comparison, f, move=keep) for n, f in COMPARISONS.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_logical, f, move=keep) for n, f in LOGICAL.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_bits, f, move=keep) for n, f in BITWISE.items()),
    Op("Pow", ("x", "y"), ("z",), _infer_pow, _pow, move=keep),
    Op("Mod", ("x", "y"), ("z",), _infer_arithmetic, _mod, ModAttributes, move=keep),
    Op("BitShift", ("x", "y"), ("z",), _infer_shift, _shift, BitShiftAttributes, move=keep),
)
