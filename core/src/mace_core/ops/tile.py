"""Tile and Expand: repeat elements along axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, broadcast, need, need_count, present, reorder


@dataclass(frozen=True)
class TileAttributes(Attributes):
    """repeats: the number of copies along each axis."""

    repeats: tuple[int, ...]


@dataclass(frozen=True)
class ExpandAttributes(Attributes):
    """shape: the shape to broadcast to."""

    shape: Shape


def _infer_tile(inputs: Inputs, attrs: TileAttributes) -> list[Spec]:
    (x,) = present(inputs)
    repeats = attrs.repeats
    need_count("repeats", repeats, len(x.shape))
    need(all(r >= 0 for r in repeats), f"repeats {list(repeats)} must not be negative")
    return [(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))]


def _tile(x: Array, attrs: TileAttributes) -> Array:
    return np.tile(x, attrs.repeats)


def _expand(x: Array, attrs: ExpandAttributes) -> Array:
    return np.broadcast_to(x, attrs.shape)


def _infer_expand(inputs: Inputs, attrs: ExpandAttributes) -> list[Spec]:
    (x,) = present(inputs)
    shape = attrs.shape
    need(
        all(d >= 0 for d in shape), f"shape {list(shape)} has a negative dimension; every one must be stated"
    )
    need(broadcast([x.shape, shape]) == shape, f"{list(x.shape)} does not expand to {list(shape)}")
    return [(x.dtype, shape)]


def _move_tile(attrs: TileAttributes, perm: Perm) -> tuple[TileAttributes, Perm]:
    return TileAttributes(reorder(attrs.repeats, perm)), perm


def _move_expand(attrs: ExpandAttributes, perm: Perm) -> tuple[ExpandAttributes, Perm]:
    shape = attrs.shape
    # Broadcasting adds axes in front; they have no counterpart in x and stay where they are.
    added = len(shape) - len(perm)
    full_perm = (*range(added), *(added + p for p in perm))
    return ExpandAttributes(reorder(shape, full_perm)), full_perm


OPS = (
    Op("Tile", ("x",), ("y",), _infer_tile, _tile, TileAttributes, move=_move_tile, moves=True),
    Op(
        "Expand",
        ("x",),
        ("y",),
        _infer_expand,
        _expand,
        ExpandAttributes,
        move=_move_expand,
        moves=True,
    ),
)
