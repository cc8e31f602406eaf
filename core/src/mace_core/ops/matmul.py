"""MatMul: numpy.matmul with an optional bias, clamped."""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, broadcast, need, same_dtype


def _infer(inputs: Inputs, attrs: ClampAttributes) -> list[Spec]:
    a, b = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    assert a is not None
    assert b is not None
    same_dtype(inputs)
    need(a.dtype is not DType.BOOL, "its inputs are bool, expected numbers")
    shape = product_shape(a.shape, b.shape)
    width = b.shape[-1] if len(b.shape) > 1 else 1
    need(
        bias is None or bias.shape == (width,),
        f"bias has shape {list(bias.shape) if bias else None}, expected [{width}]",
    )
    need(attrs.low <= attrs.high, f"low {attrs.low} is above high {attrs.high}")
    return [(a.dtype, shape)]


def product_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of numpy.matmul's result; raises OpError if the factors do not fit."""
    need(bool(a) and bool(b), "a factor is a scalar; multiply by one with Mul")
    depth = b[-2:][0]
    need(a[-1] == depth, f"a has {a[-1]} columns and b {depth} rows; they must be the same")
    return (*broadcast((a[:-2], b[:-2])), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _matmul(a: Array, b: Array, bias: Array | None = None, *, attrs: ClampAttributes) -> Array:
    """Multiply, add the bias and clamp; sums of floats are computed in float64, integers wrap."""
    is_float = np.issubdtype(a.dtype, np.floating)
    dtype = np.dtype(np.float64) if is_float else a.dtype
    product = np.asarray(np.matmul(a.astype(dtype), b.astype(dtype)))
    if bias is not None:
        # numpy drops the axis of a vector b, and the bias has one element then.
        product = product + (bias if b.ndim > 1 else bias[0])
    clamped = np.clip(product, attrs.low, attrs.high) if is_float else _clamp_integers(product, attrs)
    return np.asarray(clamped.astype(a.dtype))


def _clamp_integers(values: Array, attrs: ClampAttributes) -> Array:
    """Clamp integers to float limits, either of which may be infinite.

    Not by numpy.clip, which would convert 64-bit integers to floats and lose their low bits.
    """
    limits = np.iinfo(values.dtype)
    # A limit beyond the type's own ends, such as -1 of unsigned integers, is that end.
    if not math.isinf(attrs.low):
        values = np.maximum(values, min(max(math.ceil(attrs.low), limits.min), limits.max))
    if not math.isinf(attrs.high):
        values = np.minimum(values, min(max(math.floor(attrs.high), limits.min), limits.max))
    return values


OPS = (Op("MatMul", ("a", "b", "bias?"), ("y",), _infer, _matmul, ClampAttributes),)
