"""Split: a tensor in parts along an axis."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer, integers
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, move_axis, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    axis = axis_of(integer(attrs, "axis"), len(x.shape))
    sizes = integers(attrs, "sizes")
    need(
        len(sizes) > 0 and all(s >= 0 for s in sizes),
        f"sizes {list(sizes)} must be at least one, none negative",
    )
    need(
        sum(sizes) == x.shape[axis],
        f"sizes {list(sizes)} add up to {sum(sizes)}, but axis {axis} has {x.shape[axis]}",
    )
    return [(x.dtype, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in sizes]


def _split(x: Array, axis: int, sizes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


OPS = (
    Op(
        "Split",
        ("x",),
        ("ys*",),
        _infer,
        _split,
        {"axis": REQUIRED, "sizes": REQUIRED},
        move=move_axis,
        moves=True,
    ),
)
