"""Split: divide a tensor into parts along an axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, present


@dataclass(frozen=True)
class SplitAttributes(AxisAttributes):
    """sizes: the length of each part along the axis."""

    sizes: tuple[int, ...]

    @property
    def is_even(self) -> bool:
        """Whether all parts have the same length and none is empty."""
        return len(set(self.sizes)) == 1 and 0 not in self.sizes


def _infer(inputs: Inputs, attrs: SplitAttributes) -> list[Spec]:
    (x,) = present(inputs)
    axis = axis_of(attrs.axis, len(x.shape))
    sizes = attrs.sizes
    need(
        len(sizes) > 0 and all(s >= 0 for s in sizes),
        f"sizes {list(sizes)} must be at least one, none negative",
    )
    need(
        sum(sizes) == x.shape[axis],
        f"sizes {list(sizes)} add up to {sum(sizes)}, but axis {axis} has {x.shape[axis]}",
    )
    return [(x.dtype, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes]


def _split(x: Array, attrs: SplitAttributes) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(attrs.sizes)[:-1], attrs.axis))


OPS = (
    Op(
        "Split",
        ("x",),
        ("ys*",),
        _infer,
        _split,
        SplitAttributes,
        move=move_axis,
        moves=True,
    ),
)
