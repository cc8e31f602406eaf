"""The types of JSON, which commands print and builds write, and a reader that checks each value's type."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar, Union

from mace_core.errors import MaceError

JsonValue: TypeAlias = Union[bool, int, float, str, "Sequence[JsonValue]", "Mapping[str, JsonValue]", None]
"""Any value of JSON."""

Json: TypeAlias = Mapping[str, JsonValue]
"""A JSON object."""

T = TypeVar("T", bool, int, str)


@dataclass(frozen=True)
class JsonObject:
    """A JSON object that a build or one of its programs wrote, read value by value.

    place: where it stands, for messages. Every method raises MaceError where the key is missing or its value
    is of another type: the file was changed, or another version wrote it.
    """

    values: Json
    place: str

    @classmethod
    def parse(cls, text: str, place: str | Path) -> JsonObject:
        """Return the object that a text holds."""
        return _as_object(_parse(text, place), str(place))

    @classmethod
    def parse_list(cls, text: str, place: str | Path) -> tuple[JsonObject, ...]:
        """Return the objects of a list that a text holds."""
        return _as_objects(_parse(text, place), str(place))

    def __contains__(self, key: str) -> bool:
        """Tell whether there is a value of this name."""
        return key in self.values

    def string(self, key: str) -> str:
        """Return the string of a key."""
        return _exact(self.values.get(key), str, self._place_of(key))

    def integer(self, key: str) -> int:
        """Return the integer of a key."""
        return _exact(self.values.get(key), int, self._place_of(key))

    def flag(self, key: str) -> bool:
        """Return the true or false of a key."""
        return _exact(self.values.get(key), bool, self._place_of(key))

    def number(self, key: str) -> float:
        """Return the number of a key; as Python writes JSON, NaN and the infinities are numbers too."""
        return _number(self.values.get(key), self._place_of(key))

    def strings(self, key: str) -> tuple[str, ...]:
        """Return the strings of a list."""
        place = self._place_of(key)
        return tuple(_exact(item, str, place) for item in _items(self.values.get(key), place))

    def integers(self, key: str) -> tuple[int, ...]:
        """Return the integers of a list."""
        place = self._place_of(key)
        return tuple(_exact(item, int, place) for item in _items(self.values.get(key), place))

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return the numbers of a list."""
        place = self._place_of(key)
        return tuple(_number(item, place) for item in _items(self.values.get(key), place))

    def object(self, key: str) -> JsonObject:
        """Return the object of a key."""
        return _as_object(self.values.get(key), self._place_of(key))

    def objects(self, key: str) -> tuple[JsonObject, ...]:
        """Return the objects of a list."""
        return _as_objects(self.values.get(key), self._place_of(key))

    def _place_of(self, key: str) -> str:
        return f"{self.place}: {key}"


def _parse(text: str, place: str | Path) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        raise _fault(str(place), f"is no JSON: {error}") from None
    return value


def _exact(value: JsonValue, kind: type[T], place: str) -> T:
    # A bool is an int for `isinstance`, but true is no count: the types must be the same.
    if type(value) is not kind:
        raise _fault(place, _mismatch(value, kind.__name__))
    return value


def _number(value: JsonValue, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fault(place, _mismatch(value, "a number"))
    return value


def _items(value: JsonValue, place: str) -> Sequence[JsonValue]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _fault(place, _mismatch(value, "a list"))
    return value


def _as_object(value: JsonValue, place: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise _fault(place, _mismatch(value, "an object"))
    return JsonObject(value, place)


def _as_objects(value: JsonValue, place: str) -> tuple[JsonObject, ...]:
    return tuple(_as_object(item, f"{place}[{i}]") for i, item in enumerate(_items(value, place)))


def _mismatch(value: JsonValue, expected: str) -> str:
    return "is missing" if value is None else f"is of type {type(value).__name__}, expected {expected}"


def _fault(place: str, problem: str) -> MaceError:
    return MaceError(place, problem, "build again: the file was changed, or another version wrote it")
