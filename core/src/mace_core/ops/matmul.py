"""MatMul: numpy.matmul with an optional bias, clamped."""

from __future__ import annotations

import math
from typing import Any

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
    """Shape of numpy.matmul's result; OpError if the factors do not fit."""
    need(bool(a) and bool(b), "a factor is a scalar; multiply by one with Mul")
    depth = b[-2:][0]
    need(a[-1] == depth, f"a has {a[-1]} columns and b {depth} rows; they must be the same")
    return (*broadcast((a[:-2], b[:-2])), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _matmul(a: Array, b: Array, bias: Array | None = None, *, attrs: ClampAttributes) -> Array:
    """Floats are summed in float64; integers wrap."""
    if not np.issubdtype(a.dtype, np.floating):
        product = np.matmul(a, b)
        biased = product if bias is None else product + (bias if b.ndim > 1 else bias[0])
        return np.asarray(_clamped(biased, attrs).astype(a.dtype))
    product = np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)))
    biased = product if bias is None else product + (bias if b.ndim > 1 else bias[0])
    return np.asarray(np.clip(biased, attrs.low, attrs.high).astype(a.dtype))


def _clamped(values: Any, attrs: ClampAttributes) -> Any:
    """Integers between two floats, either of which may be infinite."""
    floor = values if math.isinf(attrs.low) else np.maximum(values, math.ceil(attrs.low))
    return floor if math.isinf(attrs.high) else np.minimum(floor, math.floor(attrs.high))


OPS = (Op("MatMul", ("a", "b", "bias?"), ("y",), _infer, _matmul, ClampAttributes),)
