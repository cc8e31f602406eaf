"""Pad: add elements before and after those of every axis."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, need_count, present, reorder

Mode = Literal["constant", "reflect", "edge", "wrap"]
"""Where the new elements come from, in numpy.pad's words."""


@dataclass(frozen=True)
class PadAttributes(Attributes):
    """before, after: number of new elements of each axis.

    value: the new elements of mode "constant"; an integer stays exact.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: Mode = "constant"
    value: int | float = 0.0


def _infer(inputs: Inputs, attrs: PadAttributes) -> list[Spec]:
    (x,) = present(inputs)
    before, after, mode = attrs.before, attrs.after, attrs.mode
    need_count("before", before, len(x.shape))
    need_count("after", after, len(x.shape))
    for axis, (dim, low, high) in enumerate(zip(x.shape, before, after, strict=True)):
        need(
            low >= 0 and high >= 0,
            f"pads {low} and {high} of axis {axis} must not be negative; use Slice to crop",
        )
        empty = mode != "constant" and dim == 0 and low + high > 0
        need(not empty, f"axis {axis} has no elements that mode {mode!r} could repeat")
    if mode == "constant":
        need_value(attrs.value, x.dtype, "value")
    return [(x.dtype, tuple(b + d + a for b, d, a in zip(before, x.shape, after, strict=True)))]


def need_value(value: float, dtype: DType, name: str) -> None:
    """Raise OpError unless an element of the type can hold the value."""
    if dtype.value[0] not in "iu":
        return
    need(
        math.isfinite(value) and value == int(value),
        f"{name} is {value}, which no element of type {dtype.value} can be",
    )
    limits = np.iinfo(dtype.numpy)
    need(
        limits.min <= int(value) <= limits.max,
        f"{name} is {value}; type {dtype.value} holds {limits.min} to {limits.max}",
    )


def _pad(x: Array, attrs: PadAttributes) -> Array:
    if x.ndim == 0:
        return x
    widths = list(zip(attrs.before, attrs.after, strict=True))
    if attrs.mode == "constant":
        return np.asarray(np.pad(x, widths, constant_values=np.asarray(attrs.value).astype(x.dtype)))
    return np.asarray(np.pad(x, widths, mode=attrs.mode))


def _move(attrs: PadAttributes, perm: Perm) -> tuple[PadAttributes, Perm]:
    return replace(attrs, before=reorder(attrs.before, perm), after=reorder(attrs.after, perm)), perm


OPS = (
    Op(
        "Pad",
        ("x",),
        ("y",),
        _infer,
        _pad,
        PadAttributes,
        move=_move,
        moves=True,
    ),
)
