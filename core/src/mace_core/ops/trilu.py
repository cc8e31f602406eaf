"""Trilu: the upper or lower triangle of the matrices in the last two axes, zero elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present


@dataclass(frozen=True)
class TriluAttributes(Attributes):
    """k: the diagonal at the border of the triangle: 0 for the main one, positive above it."""

    k: int = 0
    upper: bool = True


def _infer(inputs: Inputs, attrs: TriluAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(len(x.shape) >= 2, f"x has shape {list(x.shape)}; its rank must be at least 2")
    return [(x.dtype, x.shape)]


def _trilu(x: Array, attrs: TriluAttributes) -> Array:
    return np.triu(x, attrs.k) if attrs.upper else np.tril(x, attrs.k)


def _move(attrs: TriluAttributes, perm: Perm) -> tuple[TriluAttributes, Perm] | None:
    # If the two axes of the matrices change places, the other triangle of the transposed matrices is the
    # same.
    last = len(perm) - 1
    if perm[-2:] == (last - 1, last):
        return attrs, perm
    if perm[-2:] == (last, last - 1):
        return TriluAttributes(-attrs.k, not attrs.upper), perm
    return None


OPS = (Op("Trilu", ("x",), ("y",), _infer, _trilu, TriluAttributes, move=_move),)
