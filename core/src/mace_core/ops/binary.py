"""Element-wise ops of two inputs, which broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, broadcast, keep, need, present, same_dtype


def _div(x: Array, y: Array) -> Array:
    """For integers rounded towards zero, and 0 where the divisor is 0: the processor's trap is no result."""
    if x.dtype.kind == "f":
        return np.divide(x, y)
    safe = np.where(y == 0, 1, y)
    quotient = np.abs(x) // np.abs(safe) * np.sign(x) * np.sign(safe) if x.dtype.kind == "i" else x // safe
    return np.where(y == 0, 0, quotient).astype(x.dtype)


def _mod(x: Array, y: Array, fmod: bool) -> Array:
    """Sign of the divisor, or of the dividend with fmod; integers by 0 give 0."""
    remainder = np.fmod if fmod else np.mod
    if x.dtype.kind == "f":
        return remainder(x, y)
    return np.where(y == 0, 0, remainder(x, np.where(y == 0, 1, y))).astype(x.dtype)


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    return np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.int64).astype(x.dtype)


def _shift(x: Array, y: Array, left: bool) -> Array:
    return np.left_shift(x, y) if left else np.right_shift(x, y)


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
LOGICAL: Mapping[str, Callable[..., Array]] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
BITWISE: Mapping[str, Callable[..., Array]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


def _shape(inputs: Inputs) -> tuple[int, ...]:
    return broadcast(t.shape for t in present(inputs))


def _infer_arithmetic(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    same_dtype(inputs)
    dtype = present(inputs)[0].dtype
    need(dtype is not DType.BOOL, "its inputs are bool; they must be numbers")
    return [(dtype, _shape(inputs))]


def _infer_pow(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    return [(present(inputs)[0].dtype, _shape(inputs))]


def _infer_comparison(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    same_dtype(inputs)
    return [(DType.BOOL, _shape(inputs))]


def _infer_logical(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    need(all(t.dtype is DType.BOOL for t in present(inputs)), "its inputs must be bool")
    return [(DType.BOOL, _shape(inputs))]


def _infer_bits(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    same_dtype(inputs)
    need(not present(inputs)[0].dtype.is_float, "its inputs must be integers")
    return [(present(inputs)[0].dtype, _shape(inputs))]


OPS = (
    *(Op(n, ("x", "y"), ("z",), _infer_arithmetic, f, move=keep) for n, f in ARITHMETIC.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_comparison, f, move=keep) for n, f in COMPARISONS.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_logical, f, move=keep) for n, f in LOGICAL.items()),
    *(Op(n, ("x", "y"), ("z",), _infer_bits, f, move=keep) for n, f in BITWISE.items()),
    Op("Pow", ("x", "y"), ("z",), _infer_pow, _pow, move=keep),
    Op("Mod", ("x", "y"), ("z",), _infer_arithmetic, _mod, {"fmod": False}, move=keep),
    Op("BitShift", ("x", "y"), ("z",), _infer_bits, _shift, {"left": True}, move=keep),
)
