"""Trilu: the upper or lower triangle of the matrices in the last two axes, zero elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    integer(attrs, "k")
    need(len(x.shape) >= 2, f"x has shape {list(x.shape)}; its rank must be at least 2")
    return [(x.dtype, x.shape)]


def _trilu(x: Array, k: int, upper: bool) -> Array:
    return np.triu(x, k) if upper else np.tril(x, k)


def _move(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm] | None:
    """The matrices' axes may change places with each other: the other triangle of the transposed matrices."""
    last = len(perm) - 1
    if perm[-2:] == (last - 1, last):
        return attrs, perm
    if perm[-2:] == (last, last - 1):
        return {"k": -integer(attrs, "k"), "upper": not attrs["upper"]}, perm
    return None


OPS = (Op("Trilu", ("x",), ("y",), _infer, _trilu, {"k": 0, "upper": True}, move=_move),)
