"""TopK: the k largest or smallest elements along an axis, the best first, and where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, present


@dataclass(frozen=True, kw_only=True)
class TopKAttributes(AxisAttributes):
    """k: number of elements to find."""

    k: int
    axis: int = -1
    largest: bool = True


def _infer(inputs: Inputs, attrs: TopKAttributes) -> list[Spec]:
    (x,) = present(inputs)
    axis, k = axis_of(attrs.axis, len(x.shape)), attrs.k
    need(0 <= k <= x.shape[axis], f"k is {k}; axis {axis} has {x.shape[axis]} elements")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [(x.dtype, shape), (DType.I64, shape)]


def _topk(x: Array, attrs: TopKAttributes) -> tuple[Array, Array]:
    """Find the k best; of equal elements the first comes first, and NaN is larger than every number."""
    axis, largest = attrs.axis, attrs.largest
    order = np.argsort(np.flip(x, axis) if largest else x, axis, kind="stable")
    if largest:
        # numpy sorts upwards only, and reversing a stable order would put the last of equal elements first.
        # The order of the reversed axis, reversed, keeps them. Negating x instead fails for the minimum of
        # integers.
        order = x.shape[axis] - 1 - np.flip(order, axis)
    indices = np.take(order, np.arange(attrs.k), axis).astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


OPS = (
    Op(
        "TopK",
        ("x",),
        ("values", "indices"),
        _infer,
        _topk,
        TopKAttributes,
        move=move_axis,
        moves=True,
    ),
)
