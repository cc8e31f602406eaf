"""Slice: evenly spaced elements of every axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integers, move_values
from mace_core.ops.op import REQUIRED, Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    starts, sizes, steps = (integers(attrs, key, len(x.shape)) for key in ("starts", "sizes", "steps"))
    for axis, (dim, start, size, step) in enumerate(zip(x.shape, starts, sizes, steps, strict=True)):
        need(step != 0, f"step of axis {axis} is 0; it must be another number")
        need(size >= 0, f"size of axis {axis} is {size}; it must not be negative")
        last = start + (size - 1) * step
        inside = size == 0 or (0 <= start < dim and 0 <= last < dim)
        need(inside, f"elements {start} to {last} of axis {axis}, which has {dim}")
    return [(x.dtype, sizes)]


def _slice(x: Array, starts: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        x = np.take(x, start + step * np.arange(size), axis)
    return x


def _move(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    return move_values(attrs, perm, ("starts", "sizes", "steps"))


OPS = (
    Op(
        "Slice",
        ("x",),
        ("y",),
        _infer,
        _slice,
        {"starts": REQUIRED, "sizes": REQUIRED, "steps": REQUIRED},
        move=_move,
        moves=True,
    ),
)
