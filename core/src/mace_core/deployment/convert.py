"""Values of a document -> the objects that the rest of MACE works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from mace_core.deployment.schema import Part


def convert(value: Any, part: Part) -> object:
    """The value as its key's x-type says; a value without one stays as it is."""
    aliases: Mapping[str, str] = part.get("x-aliases", {})
    if isinstance(value, str):
        value = aliases.get(value, value)
    converted = _CONVERSIONS[part["x-type"]](value, aliases) if "x-type" in part else value
    return MappingProxyType(converted) if isinstance(converted, dict) else converted


def _flag(value: Any, _: Mapping[str, str]) -> bool:
    return value is True or value == 1


def _words(value: Any, _: Mapping[str, str]) -> tuple[str, ...]:
    """Distinct words from a list or from a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(part.strip() for part in parts))


def _names(value: Any, _: Mapping[str, str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _runtime(value: str, aliases: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(aliases.get(word, word) for word in value.split("+")))


def _shapes(value: Any, _: Mapping[str, str]) -> tuple[tuple[int, ...], ...]:
    """Shapes as tuples; an empty text is the shape of one number, (1,), as in MACE."""
    return tuple(tuple(int(n) for n in row) or (1,) for row in _rows(value))


def _ranges(value: Any, _: Mapping[str, str]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(n) for n in row) for row in _rows(value))


def _rows(value: Any) -> list[list[str]]:
    """Rows of numbers; from one text with commas, or from a list of such or of lists."""
    rows = [value] if isinstance(value, str) else value
    return [[n for n in row.split(",") if n.strip()] if isinstance(row, str) else row for row in rows]


def _path(value: str, _: Mapping[str, str]) -> str | None:
    return value or None


def _thresholds(value: Mapping[str, float], aliases: Mapping[str, str]) -> dict[str, float]:
    return {aliases.get(name, name): float(minimum) for name, minimum in value.items()}


_CONVERSIONS: Mapping[str, Callable[[Any, Mapping[str, str]], object]] = MappingProxyType(
    {
        "flag": _flag,
        "names": _names,
        "path": _path,
        "paths": _names,
        "ranges": _ranges,
        "runtime": _runtime,
        "shapes": _shapes,
        "thresholds": _thresholds,
        "words": _words,
    }
)
