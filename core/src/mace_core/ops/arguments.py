"""Attributes read as what an op needs them to be, and carried along when the axes are reordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mace_core.ir import Attrs, Tensor
from mace_core.ops.op import OpError, Perm
from mace_core.ops.shapes import need

T = TypeVar("T")


def integer(attrs: Attrs, key: str) -> int:
    """An attribute that is a whole number; OpError otherwise."""
    value = attrs[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise OpError(f"{key} is {value!r}; it must be a whole number")
    return value


def integers(attrs: Attrs, key: str, count: int | None = None) -> tuple[int, ...]:
    """An attribute that is a tuple of whole numbers, `count` of them if given; OpError otherwise."""
    value = attrs[key]
    if not isinstance(value, tuple) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        raise OpError(f"{key} is {value!r}; it must be a tuple of whole numbers")
    need(
        count is None or len(value) == count,
        f"{key} has {len(value)} values; it must have {count}, one for each axis",
    )
    return value


def floats(attrs: Attrs, key: str, count: int) -> tuple[float, ...]:
    """An attribute that is a tuple of `count` numbers; OpError otherwise."""
    value = attrs[key]
    if not isinstance(value, tuple) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) for v in value
    ):
        raise OpError(f"{key} is {value!r}; it must be a tuple of numbers")
    need(len(value) == count, f"{key} has {len(value)} values; it must have {count}")
    return tuple(map(float, value))


def real(attrs: Attrs, key: str) -> float:
    """An attribute that is a number."""
    value = attrs[key]
    assert isinstance(value, int | float), f"the schema lets {key} be {value!r}"
    return float(value)


def choice(attrs: Attrs, key: str, values: Sequence[str]) -> str:
    """An attribute that is one of these words; OpError otherwise."""
    value = attrs[key]
    if not isinstance(value, str) or value not in values:
        raise OpError(f"{key} is {value!r}; it must be one of {', '.join(values)}")
    return value


def need_indices(tensor: Tensor, what: str) -> None:
    """OpError unless a tensor holds whole numbers."""
    text = f"{what} are of type {tensor.dtype.value}; they must be whole numbers"
    need(tensor.dtype.value[0] in "iu", text)


def reordered(values: Sequence[T], perm: Perm) -> tuple[T, ...]:
    """Values for each axis of x as values for each axis of x', where x = transpose(x', perm)."""
    return tuple(value for _, value in sorted(zip(perm, values, strict=True), key=lambda pair: pair[0]))


def move_values(attrs: Attrs, perm: Perm, keys: Sequence[str]) -> tuple[Mapping[str, Any], Perm]:
    """The layout rule of an op whose attributes `keys` hold a value for each axis."""
    moved: dict[str, Any] = dict(attrs)
    for key in keys:
        value = attrs[key]
        assert isinstance(value, tuple)
        moved[key] = reordered(value, perm)
    return moved, perm
