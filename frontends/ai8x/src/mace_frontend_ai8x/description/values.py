"""Reads the values of the description's keys from their text.

A reader takes what stands in the file and returns the value, or raises `UnreadError` with what it expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mace_core.deployment.source import Written

Reader = Callable[[Written], Any]
Pair = tuple[int, ...]
"""One number for both axes, or one for each."""

_WORDS: Mapping[str, bool] = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]+)")
_MASK = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_DIGITS = 20
"""More digits than any number of the language has; a longer one is not converted, which takes long."""


class UnreadError(ValueError):
    """A value is not one of those that are expected; the message says which are."""


def text(value: Written) -> str:
    """Return the text of a scalar."""
    if not isinstance(value.content, str) or not value.content.strip():
        raise UnreadError("a word")
    return value.content.strip()


def integer(low: int, high: int) -> Reader:
    """Return the reader of an integer in a range, decimal or hexadecimal with 0x."""

    def read(value: Written) -> int:
        number = _number(value.content)
        if number is None or not low <= number <= high:
            raise UnreadError(f"an integer from {low} to {high}")
        return number

    return read


def offset(value: Written) -> int:
    """Return an offset in a memory, in bytes."""
    number = _number(value.content)
    if number is None or not 0 <= number < 1 << 32:
        raise UnreadError("a number of bytes such as 0x2000")
    return number


def mask(value: Written) -> int:
    """Return 64 bits, written in hexadecimal with dots between them that are ignored.

    0x may be left out where a letter or a dot shows what it is.
    """
    content = value.content if isinstance(value.content, str) else ""
    # The vendor's descriptions group the quadrants' digits by dots or underlines.
    match = _MASK.fullmatch(content.replace(".", "").replace("_", ""))
    if match is None or len(match[2].lstrip("0")) > 16:
        raise UnreadError("up to 64 bits in hexadecimal such as 0x000000000000000f")
    if not match[1] and content.isdecimal() and int(content) > 9:
        # "10" may be meant as decimal or as hexadecimal, and the wrong one is a valid mask too.
        alternatives = f"0x{content}, or 0x{int(content):x} for decimal {content}"
        raise UnreadError(f"a hexadecimal number that shows what it is: {alternatives}")
    return int(match[2], 16)


def flag(value: Written) -> bool:
    """Return true or false, as YAML 1.1 spells them."""
    # The vendor's tool reads YAML 1.1, in which yes and on are booleans as well.
    is_set = _WORDS.get(value.content.lower()) if isinstance(value.content, str) else None
    if is_set is None:
        raise UnreadError("true or false")
    return is_set


def choice(values: Mapping[str, Any]) -> Reader:
    """Return the reader of one of several words, in upper or lower case."""

    def read(value: Written) -> Any:
        word = value.content.strip().lower() if isinstance(value.content, str) else ""
        if word not in values:
            raise UnreadError(f"one of {', '.join(name for name in values if name)}")
        return values[word]

    return read


def pair(low: int, high: int) -> Reader:
    """Return the reader of a number for both axes, or one for each: 3, 3x3 or [3, 3]."""

    def read(value: Written) -> Pair:
        numbers = _numbers(value)
        if not 1 <= len(numbers) <= 2 or any(n is None or not low <= n <= high for n in numbers):
            raise UnreadError(f"one integer or two [rows, columns], from {low} to {high}")
        return tuple(n for n in numbers if n is not None)

    return read


def groups(value: Written) -> tuple[int, ...]:
    """Return one quadrant or several."""
    numbers = _numbers(value)
    # There are four quadrants on both parts, each with a bias memory of its own.
    if not numbers or any(n is None or not 0 <= n <= 3 for n in numbers):
        raise UnreadError("quadrants, from 0 to 3")
    return tuple(n for n in numbers if n is not None)


def reference(value: Written) -> int | str:
    """Return a layer by its sequence number or its name."""
    word = text(value)
    # A layer may be named '3'; the quotes tell that name from the sequence number.
    number = None if value.quoted else _number(word)
    return word if number is None else number


def references(value: Written) -> tuple[int | str, ...]:
    """Return one layer or several."""
    if isinstance(value.content, tuple):
        if not value.content:
            raise UnreadError("a layer's name or sequence number, or a list of them")
        return tuple(reference(item) for item in value.content)
    return (reference(value),)


def words(value: Written) -> tuple[int, ...]:
    """Return a list of 32-bit values."""
    numbers = _numbers(value)
    in_range = tuple(n for n in numbers if n is not None and 0 <= n < 1 << 32)
    if len(in_range) != len(numbers):
        raise UnreadError("a list of numbers of 32 bits")
    return in_range


def items(value: Written) -> tuple[Written, ...]:
    """Return the items of a list of mappings, whose keys are read later."""
    if not isinstance(value.content, tuple) or not all(
        isinstance(item.content, Mapping) for item in value.content
    ):
        raise UnreadError("a list of mappings, each item beginning with '- '")
    return value.content


def _number(content: object) -> int | None:
    if not isinstance(content, str) or len(content) > _DIGITS:
        return None
    # YAML 1.1 allows underlines inside of numbers.
    plain = content.replace("_", "")
    if match := _HEXADECIMAL.fullmatch(plain):
        return int(match[1], 16)
    return int(plain) if _DECIMAL.fullmatch(plain) else None


def _numbers(value: Written) -> tuple[int | None, ...]:
    """Return the numbers of a list, of an integer, or of integers with x between them; 0x10 is one number."""
    if isinstance(value.content, tuple):
        return tuple(_number(item.content) for item in value.content)
    if (single := _number(value.content)) is not None:
        return (single,)
    return (
        tuple(_number(part.strip()) for part in value.content.lower().split("x"))
        if isinstance(value.content, str)
        else (None,)
    )
