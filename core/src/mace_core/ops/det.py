"""Det: determinants of square matrices."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"x is of type {x.dtype.value}; it must be a float type")
    need(
        len(x.shape) >= 2 and x.shape[-1] == x.shape[-2],
        f"x has shape {list(x.shape)}; its last two axes must have the same length",
    )
    return [(x.dtype, x.shape[:-2])]


def _det(x: Array) -> Array:
    return np.asarray(np.linalg.det(x.astype(np.float64)).astype(x.dtype))


OPS = (Op("Det", ("x",), ("y",), _infer, _det),)
