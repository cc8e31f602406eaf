"""ArgMax and ArgMin: the position of the largest or smallest element along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array, DType
from mace_core.ops import reduce
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, need, present


@dataclass(frozen=True)
class ArgAttributes(AxisAttributes):
    """last: whether the last of equal extremes counts."""

    keepdims: bool = True
    last: bool = False


def _reference(function: Callable[..., Array]) -> Callable[..., Array]:
    def reference(x: Array, attrs: ArgAttributes) -> Array:
        axis, keepdims = attrs.axis, attrs.keepdims
        if not attrs.last:
            return np.asarray(function(x, axis=axis, keepdims=keepdims), np.int64)
        # numpy returns the first of equal extremes; the first of the reversed axis is the last one.
        backwards = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        return np.asarray(x.shape[axis] - 1 - backwards, np.int64)

    return reference


def _as_reduction(attrs: ArgAttributes) -> reduce.ReduceAttributes:
    return reduce.ReduceAttributes((attrs.axis,), attrs.keepdims)


def _infer(inputs: Inputs, attrs: ArgAttributes) -> list[Spec]:
    ((_, shape),) = reduce.infer(inputs, _as_reduction(attrs))
    need(present(inputs)[0].shape[attrs.axis] > 0, "its axis is empty")
    return [(DType.I64, shape)]


def _move(attrs: ArgAttributes, perm: Perm) -> tuple[ArgAttributes, Perm]:
    moved, perm = reduce.move(_as_reduction(attrs), perm)
    return replace(attrs, axis=moved.axes[0]), perm


OPS = (
    Op("ArgMax", ("x",), ("y",), _infer, _reference(np.argmax), ArgAttributes, move=_move),
    Op("ArgMin", ("x",), ("y",), _infer, _reference(np.argmin), ArgAttributes, move=_move),
)
