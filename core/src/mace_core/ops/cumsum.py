"""CumSum and CumProd: running totals and products along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def _product(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """As running totals; the product of nothing is 1."""
    turned = np.flip(x, axis) if reverse else x
    total = np.cumprod(turned, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    if exclusive:
        kept = np.take(total, np.arange(x.shape[axis] - 1), axis) if x.shape[axis] else total
        total = np.concatenate([np.ones_like(np.take(total, np.arange(min(1, x.shape[axis])), axis)), kept], axis)
    return (np.flip(total, axis) if reverse else total).astype(x.dtype)


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    axis_of(integer(attrs, "axis"), len(present(inputs)[0].shape))
    return same(inputs, attrs)


ATTRS: Mapping[str, Any] = {"axis": REQUIRED, "exclusive": False, "reverse": False}
OPS = (
    Op("CumSum", ("x",), ("y",), _infer, _reference, ATTRS, move=move_axis),
    Op("CumProd", ("x",), ("y",), _infer, _product, ATTRS, move=move_axis),
)
