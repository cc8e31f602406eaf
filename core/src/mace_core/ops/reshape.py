"""Reshape: the same elements in the same order under another shape."""

from __future__ import annotations

import math

from mace_core.ir import Attrs
from mace_core.ops.arguments import integers
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    shape = integers(attrs, "shape")
    need(
        all(d >= 0 for d in shape), f"shape {list(shape)} has a negative dimension; every one must be stated"
    )
    need(
        math.prod(shape) == x.elements,
        f"{x.elements} elements of {list(x.shape)} do not fill shape {list(shape)}",
    )
    return [(x.dtype, shape)]


OPS = (
    Op("Reshape", ("x",), ("y",), _infer, lambda x, shape: x.reshape(shape), {"shape": REQUIRED}, moves=True),
)
