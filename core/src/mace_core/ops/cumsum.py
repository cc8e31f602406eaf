"""CumSum: running totals along an axis."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, move_axis, present, same


def _reference(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Of all before and including each element, or only before it; from the end if reverse."""
    turned = np.flip(x, axis) if reverse else x
    total = np.cumsum(turned, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    total = total - turned if exclusive else total
    return (np.flip(total, axis) if reverse else total).astype(x.dtype)


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    axis_of(integer(attrs, "axis"), len(present(inputs)[0].shape))
    return same(inputs, attrs)


OPS = (Op("CumSum", ("x",), ("y",), _infer, _reference, {"axis": REQUIRED, "exclusive": False, "reverse": False}, move=move_axis),)
