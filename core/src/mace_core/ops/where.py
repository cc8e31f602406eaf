"""Where: one of two values, element by element."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, broadcast, keep, need, present, same_dtype


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    condition, x, y = present(inputs)
    need(condition.dtype is DType.BOOL, f"its condition is {condition.dtype.value}; it must be bool")
    same_dtype((x, y))
    return [(x.dtype, broadcast((condition.shape, x.shape, y.shape)))]


OPS = (Op("Where", ("condition", "x", "y"), ("z",), _infer, np.where, move=keep),)
