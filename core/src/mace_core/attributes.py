"""Typed attributes of ops: a frozen dataclass for each family, against which values are checked once.

The module is not in `mace_core.ops` because the graph (`mace_core.ir`), which the ops import, needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

Attribute: TypeAlias = Union[bool, int, float, str, "tuple[Attribute, ...]"]
"""A value that an attribute can have."""


@dataclass(frozen=True)
class Attributes:
    """The attributes of one node; the base class itself is that of ops which have none.

    A family of ops derives a frozen dataclass from it. A field without a default is required. Types of
    fields: bool, int, float, int | float (an integer stays exact), str, a Literal of words, and tuples of
    these.
    """


AttributeValues: TypeAlias = Mapping[str, object] | Attributes
"""Values by name, of which those with defaults may be left out, or complete attributes."""

A = TypeVar("A", bound=Attributes)


class AttributesError(ValueError):
    """Values do not fit a class; the text names each attribute that is unknown, missing or mistyped."""


class _MismatchError(Exception):
    """A value is not of the type of its field."""


Reader = Callable[[object], Any]
"""Return a value as its field holds it; raise `_MismatchError` if it is of another type."""


@dataclass(frozen=True)
class Field:
    """A field of an attributes class.

    text: its type in words, for messages.  default: MISSING where it must be given.
    """

    name: str
    type: Any
    text: str
    default: object
    read: Reader

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING


def fields_of(kind: type[Attributes]) -> Mapping[str, Field]:
    """Return the fields of an attributes class by name; TypeError for a type that attributes cannot have."""
    # Kept for each class, because resolving type hints takes far longer than checking the values of a node.
    # Not by `functools.cache`: to mypy, a class with fields of its own is not hashable.
    known = _FIELDS.get(kind)
    if known is None:
        hints = get_type_hints(kind)
        known = {f.name: _field(kind, f.name, hints[f.name], f.default) for f in fields(kind)}
        _FIELDS[kind] = known
    return known


_FIELDS: dict[type[Attributes], Mapping[str, Field]] = {}


def _field(kind: type[Attributes], name: str, hint: Any, default: object) -> Field:
    try:
        read = _reader(hint)
        return Field(name, hint, _describe(hint), default, read)
    except TypeError as error:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__}.{name}: {error}") from None


def complete(kind: type[A], values: AttributeValues) -> A:
    """Return the attributes of a class from values by name, defaults filled in.

    Lists and arrays become tuples, scalars of numpy those of Python. Attributes of the class are checked too,
    because Python lets a dataclass have values of other types.
    Raises AttributesError that names every unknown, missing or mistyped attribute.
    """
    declared = fields_of(kind)
    if isinstance(values, Attributes):
        values = values_of(values)
    faults: list[str] = []
    checked: dict[str, Attribute] = {}
    for name, field in declared.items():
        if name not in values:
            if field.default is MISSING:
                faults.append(f"attribute {name!r} is required")
            continue
        value = values[name]
        try:
            checked[name] = field.read(value)
        except _MismatchError:
            faults.append(f"attribute {name!r} is {_plain(value)!r}, expected {field.text}")
    if len(values) > len(checked):
        faults = [*(f"no attribute {name!r}" for name in sorted(set(values) - set(declared))), *faults]
    if faults:
        raise AttributesError(", ".join(faults))
    return kind(**checked)


def values_of(attrs: Attributes) -> dict[str, Attribute]:
    """Return the values of attributes by name."""
    return {name: getattr(attrs, name) for name in fields_of(type(attrs))}


def _plain(value: object) -> object:
    """Return lists and arrays as tuples and numpy's scalars as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value


def _reader(hint: Any) -> Reader:
    """Return the function that checks values of a type; TypeError if attributes cannot have it."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is float:
        return _read_float
    if hint in (bool, int, str):
        return _exact(hint)
    if origin is Literal and all(isinstance(word, str) for word in parts):
        return _word(frozenset(parts))
    if origin in (Union, UnionType):
        return _any_of([_reader(part) for part in parts])
    if origin is tuple and len(parts) == 2 and parts[1] is Ellipsis:
        return _sequence(_reader(parts[0]))
    if origin is tuple and parts and Ellipsis not in parts:
        return _row([_reader(part) for part in parts])
    raise TypeError(f"attributes cannot be of type {hint}")


def _exact(kind: type) -> Reader:
    def read(value: object) -> object:
        if type(value) is kind:
            return value
        # A bool is an int for `isinstance`, but no integer to an op: the types must be the same.
        plain = _plain(value)
        if type(plain) is not kind:
            raise _MismatchError
        return plain

    return read


def _read_float(value: object) -> float:
    if type(value) is float:
        return value
    plain = _plain(value)
    if not isinstance(plain, int | float) or isinstance(plain, bool):
        raise _MismatchError
    try:
        return float(plain)
    except OverflowError:  # an integer beyond all floats
        raise _MismatchError from None


def _word(words: frozenset[str]) -> Reader:
    def read(value: object) -> object:
        plain = _plain(value)
        if not isinstance(plain, str) or plain not in words:
            raise _MismatchError
        return plain

    return read


def _any_of(readers: list[Reader]) -> Reader:
    """Return a reader that takes the first type that fits: `int | float` keeps an integer as it is."""

    def read(value: object) -> object:
        for reader in readers:
            try:
                return reader(value)
            except _MismatchError:
                continue
        raise _MismatchError

    return read


def _sequence(item: Reader) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, tuple | list | np.ndarray):
            raise _MismatchError
        return tuple(map(item, _items(value)))

    return read


def _row(items: list[Reader]) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, tuple | list | np.ndarray) or len(_items(value)) != len(items):
            raise _MismatchError
        return tuple(item(v) for item, v in zip(items, _items(value), strict=True))

    return read


def _items(
    value: tuple[object, ...] | list[object] | np.ndarray[Any, Any],
) -> tuple[object, ...] | list[object]:
    """Return the elements of a sequence; raises _MismatchError for an array without axes."""
    if not isinstance(value, np.ndarray):
        return value
    if not value.ndim:
        raise _MismatchError
    return list(value)


def _describe(hint: Any) -> str:
    """Return a type in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (Union, UnionType):
        # `int | float` is a number for whoever writes a model.
        return _WORDS[float] if set(parts) == {int, float} else " or ".join(map(_describe, parts))
    if origin is tuple and Ellipsis in parts:
        return f"a tuple of {_PLURALS.get(parts[0]) or f'values, each {_describe(parts[0])}'}"
    if origin is tuple:
        return f"a tuple ({', '.join(map(_describe, parts))})"
    return _WORDS[hint]


_WORDS = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
_PLURALS = {bool: "booleans", int: "integers", float: "numbers", str: "strings"}
