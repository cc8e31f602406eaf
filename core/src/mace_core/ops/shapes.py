"""Checks, shape rules and layout rules that several ops share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Shape, Tensor
from mace_core.ops.op import OpError, Perm, Spec

Inputs = Sequence[Tensor | None]
T = TypeVar("T")
A = TypeVar("A", bound=Attributes)


@dataclass(frozen=True)
class AxisAttributes(Attributes):
    """The attributes of an op that works along one axis; a negative one counts from the end."""

    axis: int


AlongAxis = TypeVar("AlongAxis", bound=AxisAttributes)


def present(inputs: Inputs) -> list[Tensor]:
    """Return the inputs that are present."""
    return [t for t in inputs if t is not None]


def need(condition: bool, text: str) -> None:
    """Raise OpError with the text unless the condition holds."""
    if not condition:
        raise OpError(text)


def same(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    """Infer one output with the type and shape of the first input."""
    first = present(inputs)[0]
    return [(first.dtype, first.shape)]


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Return the shape that these broadcast to by numpy's rules; OpError if they do not."""
    shapes = list(shapes)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OpError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast") from None


def same_dtype(inputs: Inputs) -> None:
    """Raise OpError unless all inputs have the same element type."""
    kinds = [t.dtype.value for t in present(inputs)]
    need(len(set(kinds)) <= 1, f"its inputs are of types {', '.join(kinds)}; they must be the same")


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front; raises OpError if it is out of range."""
    need(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def keep(attrs: A, perm: Perm) -> tuple[A, Perm]:
    """Layout rule of an element-wise op, which computes the same in any order of axes."""
    return attrs, perm


def move_axis(attrs: AlongAxis, perm: Perm) -> tuple[AlongAxis, Perm]:
    """Layout rule of an op that works along one `axis` and keeps the rank."""
    return replace(attrs, axis=perm[attrs.axis % len(perm)]), perm


def reorder(values: Sequence[T], perm: Perm) -> tuple[T, ...]:
    """Return values for each axis of x as values for each axis of x', where x = transpose(x', perm)."""
    return tuple(value for _, value in sorted(zip(perm, values, strict=True), key=lambda pair: pair[0]))


def need_count(name: str, values: Sequence[object], count: int) -> None:
    """Raise OpError unless an attribute has a value for each axis."""
    if len(values) != count:
        raise OpError(f"{name} has {len(values)} values; it must have {count}, one for each axis")


def need_indices(tensor: Tensor, name: str) -> None:
    """Raise OpError unless a tensor holds integers."""
    need(
        tensor.dtype.value[0] in "iu",
        f"{name} are of type {tensor.dtype.value}; they must be integers",
    )
