"""Changes models a little, so that many of the results are still valid.

Numbers become others near them, names become those of other tensors.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

from mace_core.testing.malformed import NUMBERS, mutations, places, value_of

HUGE = 0.04
"""The share of changed numbers that become one which no valid model has."""

Json = Any
"""A value of JSON."""


def mild_number(value: float, rng: random.Random) -> float:
    """Return a number near `value`, or one that is common in models: an axis, a size, the end of a range."""
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
    """Yield `count` copies of a protobuf message with one field changed, some with two or three."""
    names = sorted({str(value_of(*place)) for place in places(message) if isinstance(value_of(*place), str)})
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        copied = type(message)()
        copied.CopyFrom(message)
        # Mostly one change: after several a model is rarely valid, and reaches no later stage.
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            fields = list(places(copied))
            if fields:
                _change_field(rng.choice(fields), names, rng)
        yield copied


def _change_field(place: Any, names: Sequence[str], rng: random.Random) -> None:
    owner, field, index = place
    value, container = value_of(*place), getattr(owner, field.name)
    if hasattr(value, "ListFields"):
        if index >= 0 and rng.random() < 0.3:
            _change_list(container, index, value, rng)
        return
    if index >= 0 and rng.random() < 0.2:
        _change_list(container, index, value, rng)
        return
    for _ in range(8):
        try:
            replacement = change_value(value, names, rng)
            if index < 0:
                setattr(owner, field.name, replacement)
            else:
                container[index] = replacement
        except (ValueError, TypeError, OverflowError):  # out of the field's range: try another value
            continue
        return


def _change_list(container: Any, index: int, value: Any, rng: random.Random) -> None:
    if rng.random() < 0.5:
        del container[index]
    elif hasattr(value, "ListFields"):
        container.add().CopyFrom(container[rng.randrange(len(container))])
    else:
        container.append(container[rng.randrange(len(container))])


def change_value(value: Any, names: Sequence[str], rng: random.Random) -> Any:
    """Return another value of the same type.  names: the strings of the model, from which one is chosen."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return mild_number(value, rng)
    if isinstance(value, str):
        return rng.choice((*names, "")) if names else ""
    return next(mutations(value, rng.randrange(1 << 30), 1)) if value else b"\x01"


def mild_json(document: Json, seed: int, count: int) -> Iterator[Json]:
    """Yield `count` copies of a JSON document with one value changed, some with two or three."""
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        copied = copy.deepcopy(document)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            spots = list(_spots(copied))
            if spots:
                _change_spot(rng.choice(spots), sorted({v for _, _, v in spots if isinstance(v, str)}), rng)
        yield copied


def _spots(value: Json) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each leaf of a document as (container, key, value)."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _spots(item)
        else:
            yield value, key, item


def _change_spot(spot: tuple[Any, Any, Any], names: Sequence[str], rng: random.Random) -> None:
    owner, key, value = spot
    if isinstance(owner, list) and rng.random() < 0.2:
        if rng.random() < 0.5:
            del owner[key]
        else:
            owner.append(value)
        return
    owner[key] = (
        rng.choice((None, 1, True, "same", 0.5)) if value is None else change_value(value, names, rng)
    )
