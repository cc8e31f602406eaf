"""Tile and Expand: the same elements again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integers, move_values, reordered
from mace_core.ops.op import REQUIRED, Op, Perm, Spec
from mace_core.ops.shapes import Inputs, broadcast, need, present


def _infer_tile(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    repeats = integers(attrs, "repeats", len(x.shape))
    need(all(r >= 0 for r in repeats), f"repeats {list(repeats)} must not be negative")
    return [(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)))]


def _tile(x: Array, repeats: tuple[int, ...]) -> Array:
    return np.tile(x, repeats)


def _infer_expand(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    shape = integers(attrs, "shape")
    need(
        all(d >= 0 for d in shape), f"shape {list(shape)} has a negative dimension; every one must be stated"
    )
    need(broadcast([x.shape, shape]) == shape, f"{list(x.shape)} does not expand to {list(shape)}")
    return [(x.dtype, shape)]


def _move_tile(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    return move_values(attrs, perm, ("repeats",))


def _move_expand(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    """The axes that expansion puts in front stay there."""
    shape = integers(attrs, "shape")
    new = len(shape) - len(perm)
    longer = (*range(new), *(new + p for p in perm))
    return {**attrs, "shape": reordered(shape, longer)}, longer


OPS = (
    Op("Tile", ("x",), ("y",), _infer_tile, _tile, {"repeats": REQUIRED}, move=_move_tile, moves=True),
    Op(
        "Expand",
        ("x",),
        ("y",),
        _infer_expand,
        np.broadcast_to,
        {"shape": REQUIRED},
        move=_move_expand,
        moves=True,
    ),
)
