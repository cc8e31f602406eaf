"""Reads attributes by name: for lowerings and transforms that do not use the typed fields yet."""

from __future__ import annotations

from mace_core.attributes import Attributes


def integer(attrs: Attributes, key: str) -> int:
    """Return an integer."""
    value: int = attrs[key]
    return value


def integers(attrs: Attributes, key: str) -> tuple[int, ...]:
    """Return a tuple of integers."""
    value: tuple[int, ...] = attrs[key]
    return value


def floats(attrs: Attributes, key: str, count: int) -> tuple[float, ...]:
    """Return a tuple of `count` numbers."""
    value: tuple[float, ...] = attrs[key]
    assert len(value) == count
    return value


def real(attrs: Attributes, key: str) -> float:
    """Return a number."""
    return float(attrs[key])
