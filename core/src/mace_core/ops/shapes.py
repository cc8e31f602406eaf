"""What the ops' shape inferences and layout rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mace_core.ir import Attrs, Shape, Tensor
from mace_core.ops.op import OpError, Perm, Spec

Inputs = Sequence[Tensor | None]


def present(inputs: Inputs) -> list[Tensor]:
    """The inputs that are there."""
    return [t for t in inputs if t is not None]


def need(condition: bool, text: str) -> None:
    """OpError with the text unless the condition holds."""
    if not condition:
        raise OpError(text)


def same(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    """One output like the first input."""
    first = present(inputs)[0]
    return [(first.dtype, first.shape)]


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """The shape that these broadcast to, as numpy does."""
    shapes = list(shapes)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OpError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast") from None


def same_dtype(inputs: Inputs) -> None:
    """OpError unless all inputs hold the same type."""
    kinds = [t.dtype.value for t in present(inputs)]
    need(len(set(kinds)) <= 1, f"its inputs are of types {', '.join(kinds)}; they must be the same")


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; OpError if there is none such."""
    need(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def keep(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    """The layout rule of an element-wise op: any order will do."""
    return attrs, perm


def move_axis(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    """The layout rule of an op along one `axis` that keeps the rank."""
    axis = attrs["axis"]
    assert isinstance(axis, int)
    return {**attrs, "axis": perm[axis % len(perm)]}, perm
