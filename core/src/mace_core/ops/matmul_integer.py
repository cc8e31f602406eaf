"""MatMulInteger: a product of plain integers, whose zero points may be known at run time only."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.matmul import product_shape
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need

EIGHT_BITS = (DType.I8, DType.U8)


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    a, b, *zeros = (*inputs, None, None)[:4]
    assert a is not None
    assert b is not None
    for factor, zero, name in ((a, zeros[0], "a"), (b, zeros[1], "b")):
        need(factor.dtype in EIGHT_BITS, f"{name} is {factor.dtype.value}, expected eight-bit integers")
        need(zero is None or zero.dtype is factor.dtype, f"the zero point of {name} is of another type")
        need(zero is None or zero.elements == 1, f"{name} has several zero points; one is supported")
    return [(DType.I32, product_shape(a.shape, b.shape))]


def _multiply(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    left, right = (
        f.astype(np.int64) - (0 if z is None else z.reshape(()).astype(np.int64))
        for f, z in ((a, a_zero), (b, b_zero))
    )
    return np.asarray(np.matmul(left, right).astype(np.int32))


OPS = (Op("MatMulInteger", ("a", "b", "a_zero?", "b_zero?"), ("y",), _infer, _multiply),)
