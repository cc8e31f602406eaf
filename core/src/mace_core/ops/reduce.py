"""Reductions over axes.

Integers: sums, products and sums of squares wrap; a mean is computed in 64 bits; what has a root or a
logarithm is computed in double precision, and saturates as a Cast does.
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
    """Of integers the exact sum's quotient without its fraction; 0 of none."""
    if x.dtype.kind == "f":
        return np.mean(x, axis=axis, keepdims=keepdims)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    count = math.prod(x.shape[a] for a in axis)
    magnitude = np.abs(total).astype(np.uint64) // np.uint64(max(1, count))
    return np.where(total < 0, np.uint64(0) - magnitude, magnitude)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda x, **k: np.max(x, initial=_least(x), **k),
    "ReduceMin": lambda x, **k: np.min(x, initial=_greatest(x), **k),
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": np.logaddexp.reduce,
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}


def _least(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _greatest(x: Array) -> Any:
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


IN_DOUBLE = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
"""Reductions of integers that are computed in double precision; all others wrap."""


def _reference(name: str) -> Callable[..., Array]:
    def reference(x: Array, attrs: ReduceAttributes) -> Array:
        wide = x.astype(np.float64) if x.dtype.kind == "f" or name in IN_DOUBLE else x
        axes = tuple(axis % x.ndim for axis in attrs.axes)
        return convert(FUNCTIONS[name](wide, axis=axes, keepdims=attrs.keepdims), DType.of(x))

    return reference


def _axes(attrs: ReduceAttributes, rank: int) -> set[int]:
    return {axis_of(a, rank) for a in attrs.axes}


def infer(inputs: Inputs, attrs: ReduceAttributes) -> list[Spec]:
    """The input without the axes, or with 1 in their places."""
    (x,) = present(inputs)
    axes = _axes(attrs, len(x.shape))
    need(x.dtype.value != "bool", "its input is bool; it must be numbers")
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape) if attrs.keepdims or i not in axes)
    return [(x.dtype, shape)]


def move(attrs: ReduceAttributes, perm: Perm) -> tuple[ReduceAttributes, Perm]:
    """Reduce the axes where they lie; without them, the others close up."""
    axes = _axes(attrs, len(perm))
    moved = replace(attrs, axes=tuple(sorted(perm[a] for a in axes)))
    return moved, perm if attrs.keepdims else closed(perm, axes)


def closed(perm: Perm, axes: set[int]) -> Perm:
    """The permutation of the axes that are left when `axes` (of the result of perm) go."""
    left = [p for i, p in enumerate(perm) if i not in axes]
    return tuple(sorted(left).index(p) for p in left)


OPS = tuple(
    Op(name, ("x",), ("y",), infer, _reference(name), ReduceAttributes, move=move) for name in FUNCTIONS
)
