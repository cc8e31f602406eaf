"""MatMulInteger: a product of plain integers, whose zero points may be known only at run time."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.matmul import product_shape
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need

EIGHT_BITS = (DType.I8, DType.U8)


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    a, b, a_zero, b_zero = (*inputs, None, None)[:4]
    assert a is not None
    assert b is not None
    for factor, zero, name in ((a, a_zero, "a"), (b, b_zero, "b")):
        need(factor.dtype in EIGHT_BITS, f"{name} is {factor.dtype.value}, expected eight-bit integers")
        need(zero is None or zero.dtype is factor.dtype, f"the zero point of {name} is of another type")
        need(zero is None or zero.elements == 1, f"{name} has several zero points; one is supported")
    return [(DType.I32, product_shape(a.shape, b.shape))]


def _multiply(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    # Sums in 64 bits keep the low 32 bits exact at any depth, so the conversion wraps as sums in int32 would.
    return np.asarray(np.matmul(_shift(a, a_zero), _shift(b, b_zero)).astype(np.int32))


def _shift(factor: Array, zero: Array | None) -> Array:
    wide = factor.astype(np.int64)
    return wide if zero is None else wide - zero.reshape(()).astype(np.int64)


OPS = (Op("MatMulInteger", ("a", "b", "a_zero?", "b_zero?"), ("y",), _infer, _multiply),)
