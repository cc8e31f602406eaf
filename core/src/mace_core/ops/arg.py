"""ArgMax and ArgMin: where along an axis the extreme lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops import reduce
from mace_core.ops.arguments import integer
from mace_core.ops.op import REQUIRED, Op, Perm, Spec
from mace_core.ops.shapes import Inputs, need, present


def _reference(function: Callable[..., Array]) -> Callable[..., Array]:
    def reference(x: Array, axis: int, keepdims: bool, last: bool) -> Array:
        """The first of equal extremes, or the last."""
        if not last:
            return np.asarray(function(x, axis=axis, keepdims=keepdims), np.int64)
        backwards = function(np.flip(x, axis), axis=axis, keepdims=keepdims)
        return np.asarray(x.shape[axis] - 1 - backwards, np.int64)

    return reference


def _as_reduction(attrs: Attrs) -> dict[str, Any]:
    return {"axes": (attrs["axis"],), "keepdims": attrs["keepdims"]}


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    ((_, shape),) = reduce.infer(inputs, _as_reduction(attrs))
    need(present(inputs)[0].shape[integer(attrs, "axis")] > 0, "its axis is empty")
    return [(DType.I64, shape)]


def _move(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    moved, perm = reduce.move(_as_reduction(attrs), perm)
    return {**attrs, "axis": moved["axes"][0]}, perm


ATTRS: Mapping[str, Any] = {"axis": REQUIRED, "keepdims": True, "last": False}

OPS = (
    Op("ArgMax", ("x",), ("y",), _infer, _reference(np.argmax), ATTRS, move=_move),
    Op("ArgMin", ("x",), ("y",), _infer, _reference(np.argmin), ATTRS, move=_move),
)
