"""Pad: more elements before and after those of every axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops.arguments import choice, integers, move_values, real
from mace_core.ops.op import REQUIRED, Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present

MODES = ("constant", "reflect", "edge", "wrap")
"""Where the new elements come from, in numpy.pad's words."""


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    before, after = (integers(attrs, key, len(x.shape)) for key in ("before", "after"))
    mode = choice(attrs, "mode", MODES)
    for axis, (dim, low, high) in enumerate(zip(x.shape, before, after, strict=True)):
        need(
            low >= 0 and high >= 0,
            f"pads {low} and {high} of axis {axis} must not be negative; use Slice to crop",
        )
        empty = mode != "constant" and dim == 0 and low + high > 0
        need(not empty, f"axis {axis} has no elements that mode {mode!r} could repeat")
    if mode == "constant":
        need_value(real(attrs, "value"), x.dtype, "value")
    return [(x.dtype, tuple(b + d + a for b, d, a in zip(before, x.shape, after, strict=True)))]


def need_value(value: float, dtype: DType, what: str) -> None:
    """OpError unless an element of the type can hold the value."""
    if dtype.value[0] not in "iu":
        return
    need(
        math.isfinite(value) and value == int(value),
        f"{what} is {value}, which no element of type {dtype.value} can be",
    )
    limits = np.iinfo(dtype.numpy)
    need(
        limits.min <= int(value) <= limits.max,
        f"{what} is {value}; type {dtype.value} holds {limits.min} to {limits.max}",
    )


def _pad(x: Array, before: tuple[int, ...], after: tuple[int, ...], mode: str, value: float) -> Array:
    if x.ndim == 0:
        return x
    widths = list(zip(before, after, strict=True))
    if mode == "constant":
        return np.asarray(np.pad(x, widths, constant_values=np.asarray(value).astype(x.dtype)))
    return np.asarray(np.pad(x, widths, mode=mode))  # type: ignore[call-overload]  # one of MODES


def _move(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    return move_values(attrs, perm, ("before", "after"))


OPS = (
    Op(
        "Pad",
        ("x",),
        ("y",),
        _infer,
        _pad,
        {"before": REQUIRED, "after": REQUIRED, "mode": "constant", "value": 0.0},
        move=_move,
        moves=True,
    ),
)
