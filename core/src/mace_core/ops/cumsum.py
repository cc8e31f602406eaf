"""CumSum and CumProd: running totals and products along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, move_axis, present, same


def _running(function: Callable[..., Array], nothing: int) -> Callable[..., Array]:
    def reference(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
        """Of all before and including each element, or only before it; from the end if reverse.

        Floats in double precision, integers modulo their range; `nothing` is the result before the first
        element.
        """
        turned = np.flip(x, axis) if reverse else x
        total = function(turned, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
        if exclusive and x.shape[axis]:
            first = np.full_like(np.take(total, [0], axis), nothing)
            total = np.concatenate([first, np.take(total, np.arange(x.shape[axis] - 1), axis)], axis)
        return (np.flip(total, axis) if reverse else total).astype(x.dtype)

    return reference


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    axis_of(integer(attrs, "axis"), len(present(inputs)[0].shape))
    return same(inputs, attrs)


ATTRS: Mapping[str, Any] = {"axis": REQUIRED, "exclusive": False, "reverse": False}
OPS = (
    Op("CumSum", ("x",), ("y",), _infer, _running(np.cumsum, 0), ATTRS, move=move_axis),
    Op("CumProd", ("x",), ("y",), _infer, _running(np.cumprod, 1), ATTRS, move=move_axis),
)
