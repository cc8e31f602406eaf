"""Slice: evenly spaced elements of every axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, need_count, present, reorder


@dataclass(frozen=True)
class SliceAttributes(Attributes):
    """Which elements of each axis are taken; a negative step goes backwards.

    starts: the first element.  sizes: the number of elements.  steps: the distance between two.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]


def _infer(inputs: Inputs, attrs: SliceAttributes) -> list[Spec]:
    (x,) = present(inputs)
    starts, sizes, steps = attrs.starts, attrs.sizes, attrs.steps
    for name, values in (("starts", starts), ("sizes", sizes), ("steps", steps)):
        need_count(name, values, len(x.shape))
    for axis, (dim, start, size, step) in enumerate(zip(x.shape, starts, sizes, steps, strict=True)):
        need(step != 0, f"step of axis {axis} is 0; it must be another number")
        need(size >= 0, f"size of axis {axis} is {size}; it must not be negative")
        last = start + (size - 1) * step
        inside = size == 0 or (0 <= start < dim and 0 <= last < dim)
        need(inside, f"elements {start} to {last} of axis {axis}, which has {dim}")
    return [(x.dtype, sizes)]


def _slice(x: Array, attrs: SliceAttributes) -> Array:
    for axis, (start, size, step) in enumerate(zip(attrs.starts, attrs.sizes, attrs.steps, strict=True)):
        x = np.take(x, start + step * np.arange(size), axis)
    return x


def _move(attrs: SliceAttributes, perm: Perm) -> tuple[SliceAttributes, Perm]:
    starts, sizes, steps = (reorder(values, perm) for values in (attrs.starts, attrs.sizes, attrs.steps))
    return SliceAttributes(starts, sizes, steps), perm


OPS = (
    Op(
        "Slice",
        ("x",),
        ("y",),
        _infer,
        _slice,
        SliceAttributes,
        move=_move,
        moves=True,
    ),
)
