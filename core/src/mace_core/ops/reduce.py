"""Reductions over axes.

Sums, products and sums of squares of integers wrap. A mean of integers is computed in 64 bits. Reductions of
integers with a root or a logarithm are computed in double precision, and saturate as a Cast does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.cast import convert
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, present


@dataclass(frozen=True)
class ReduceAttributes(Attributes):
    """keepdims: whether the reduced axes stay, of length 1."""

    axes: tuple[int, ...]
    keepdims: bool = True


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Compute the mean; that of integers is rounded towards zero, and 0 if there are none."""
    if x.dtype.kind == "f":
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    count = math.prod(x.shape[a] for a in axis)
    # Divided as a magnitude, because numpy rounds quotients of integers down, C and the frameworks towards
    # zero.
    magnitude = np.abs(total).astype(np.uint64) // np.uint64(max(1, count))
    return np.where(total < 0, np.uint64(0) - magnitude, magnitude)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": _mean,
    # The initial value makes the result over no elements that of an empty maximum or minimum, not an error.
    "ReduceMax": lambda x, **k: np.max(x, initial=_lowest(x), **k),
    "ReduceMin": lambda x, **k: np.min(x, initial=_highest(x), **k),
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    # logaddexp subtracts the maximum first, so that no exponential overflows.
    "ReduceLogSumExp": np.logaddexp.reduce,
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}


def _lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _highest(x: Array) -> Any:
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


IN_DOUBLE = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
"""Reductions that are computed in double precision even of integers; other reductions of integers wrap."""


def _reference(name: str) -> Callable[..., Array]:
    def reference(x: Array, attrs: ReduceAttributes) -> Array:
        wide = x.astype(np.float64) if x.dtype.kind == "f" or name in IN_DOUBLE else x
        axes = tuple(axis % x.ndim for axis in attrs.axes)
        return convert(FUNCTIONS[name](wide, axis=axes, keepdims=attrs.keepdims), DType.of(x))

    return reference


def _axes(attrs: ReduceAttributes, rank: int) -> set[int]:
    return {axis_of(a, rank) for a in attrs.axes}


def infer(inputs: Inputs, attrs: ReduceAttributes) -> list[Spec]:
    """Infer the input's shape without the axes, or with length 1 in their places."""
    (x,) = present(inputs)
    axes = _axes(attrs, len(x.shape))
    need(x.dtype.value != "bool", "its input is bool; it must be numbers")
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape) if attrs.keepdims or i not in axes)
    return [(x.dtype, shape)]


def move(attrs: ReduceAttributes, perm: Perm) -> tuple[ReduceAttributes, Perm]:
    """Layout rule: reduce the axes where they lie now; without `keepdims` the other axes close up."""
    axes = _axes(attrs, len(perm))
    moved = replace(attrs, axes=tuple(sorted(perm[a] for a in axes)))
    return moved, perm if attrs.keepdims else close_gaps(perm, axes)


def close_gaps(perm: Perm, axes: set[int]) -> Perm:
    """Return the permutation of the axes that are left when `axes`, of the result of perm, are removed."""
    left = [p for i, p in enumerate(perm) if i not in axes]
    return tuple(sorted(left).index(p) for p in left)


OPS = tuple(
    Op(name, ("x",), ("y",), infer, _reference(name), ReduceAttributes, move=move) for name in FUNCTIONS
)
