"""Changes the structure of models a little, so that many of them stay valid: numbers become neighbors, names those of other tensors."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

from mace_core.testing.malformed import NUMBERS, mutations, places, value_of

HUGE = 0.04
"""The share of changed numbers that become one that no model ought to hold."""

Json = Any
"""What JSON can hold."""


def mild_number(value: float, rng: random.Random) -> float:
    """Return a number near another, or one that means much in a model: an axis, a size, the end of a range."""
    if isinstance(value, float):
        return rng.choice(
            (
                0.0,
                1.0,
                -1.0,
                value * 2,
                -value,
                value / 3,
                value + 1,
                1e-3,
                6.0,
                1e30 if rng.random() < HUGE else 0.5,
            )
        )
    if rng.random() < HUGE:
        return rng.choice(NUMBERS)
    return rng.choice((value + 1, value - 1, value * 2, value // 2, 0, 1, 2, 3, 4, 5, 7, -1, -2))


def mild_messages(message: Any, seed: int, count: int) -> Iterator[Any]:
    """Yield so many copies of a protobuf message with one field changed, some with two or three."""
    texts = sorted({str(value_of(*place)) for place in places(message) if isinstance(value_of(*place), str)})
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        made = type(message)()
        made.CopyFrom(message)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            found = list(places(made))
            if found:
                _change_field(rng.choice(found), texts, rng)
        yield made


def _change_field(place: Any, texts: Sequence[str], rng: random.Random) -> None:
    owner, field, index = place
    value, held = value_of(*place), getattr(owner, field.name)
    if hasattr(value, "ListFields"):
        if index >= 0 and rng.random() < 0.3:
            _change_list(held, index, value, rng)
        return
    if index >= 0 and rng.random() < 0.2:
        _change_list(held, index, value, rng)
        return
    for _ in range(8):
        try:
            made = changed(value, texts, rng)
            if index < 0:
                setattr(owner, field.name, made)
            else:
                held[index] = made
        except (ValueError, TypeError, OverflowError):  # out of the field's range: try another
            continue
        return


def _change_list(held: Any, index: int, value: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        del held[index]
    elif hasattr(value, "ListFields"):
        held.add().CopyFrom(held[rng.randrange(len(held))])
    else:
        held.append(held[rng.randrange(len(held))])


def changed(value: Any, texts: Sequence[str], rng: random.Random) -> Any:
    """Return a value in place of another of its kind. texts: names that there are."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return mild_number(value, rng)
    if isinstance(value, str):
        return rng.choice((*texts, "")) if texts else ""
    return next(mutations(value, rng.randrange(1 << 30), 1)) if value else b"\x01"


def mild_json(document: Json, seed: int, count: int) -> Iterator[Json]:
    """Yield so many copies of a JSON document with one value changed, some with two or three."""
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        made = copy.deepcopy(document)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            found = list(_spots(made))
            if found:
                _change_spot(rng.choice(found), sorted({v for _, _, v in found if isinstance(v, str)}), rng)
        yield made


def _spots(value: Json) -> Iterator[tuple[Any, Any, Any]]:
    """Yield every value that is no container, with what holds it and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _spots(item)
        else:
            yield value, key, item


def _change_spot(spot: tuple[Any, Any, Any], texts: Sequence[str], rng: random.Random) -> None:
    owner, key, value = spot
    if isinstance(owner, list) and rng.random() < 0.2:
        if rng.random() < 0.5:
            del owner[key]
        else:
            owner.append(value)
        return
    owner[key] = rng.choice((None, 1, True, "same", 0.5)) if value is None else changed(value, texts, rng)
