"""SquaredDistance: squared Euclidean distances between all rows of two matrices."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present, same_dtype


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    x, y = present(inputs)
    same_dtype(inputs)
    need(x.dtype in (DType.F32, DType.F64), f"x is of type {x.dtype.value}; it must be f32 or f64")
    need(
        len(x.shape) == len(y.shape) == 2 and x.shape[1] == y.shape[1],
        f"shapes {list(x.shape)} and {list(y.shape)}; rows must have the same length",
    )
    return [(x.dtype, (x.shape[0], y.shape[0]))]


def _distances(x: Array, y: Array) -> Array:
    # Not by the faster |x|^2 - 2xy + |y|^2: for rows near each other it subtracts large numbers that are
    # almost equal, and loses the digits of the distance.
    wide = x.astype(np.float64)[:, None] - y.astype(np.float64)[None]
    return np.asarray((wide * wide).sum(-1), x.dtype)


OPS = (Op("SquaredDistance", ("x", "y"), ("distance",), _infer, _distances),)
