"""CumSum and CumProd: running totals and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, present, same


@dataclass(frozen=True)
class CumulativeAttributes(AxisAttributes):
    """exclusive: whether each total leaves out its own element.  reverse: whether it counts from the end."""

    exclusive: bool = False
    reverse: bool = False


def _accumulate(function: Callable[..., Array], neutral: int) -> Callable[..., Array]:
    """Make the reference of a running total.  neutral: the total of no elements."""

    def reference(x: Array, attrs: CumulativeAttributes) -> Array:
        axis = attrs.axis
        # Floats in double precision: a running total carries the error of every step before it.
        directed = np.flip(x, axis) if attrs.reverse else x
        total = function(directed, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
        if attrs.exclusive and x.shape[axis]:
            first = np.full_like(np.take(total, [0], axis), neutral)
            total = np.concatenate([first, np.take(total, np.arange(x.shape[axis] - 1), axis)], axis)
        return (np.flip(total, axis) if attrs.reverse else total).astype(x.dtype)

    return reference


def _infer(inputs: Inputs, attrs: CumulativeAttributes) -> list[Spec]:
    (x,) = present(inputs)
    axis_of(attrs.axis, len(x.shape))
    need(x.dtype is not DType.BOOL, "its input is bool; it must be numbers")
    return same(inputs, attrs)


OPS = (
    Op("CumSum", ("x",), ("y",), _infer, _accumulate(np.cumsum, 0), CumulativeAttributes, move=move_axis),
    Op("CumProd", ("x",), ("y",), _infer, _accumulate(np.cumprod, 1), CumulativeAttributes, move=move_axis),
)
