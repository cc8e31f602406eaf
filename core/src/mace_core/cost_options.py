"""Reads the numbers of a target's cost model from the deployment file."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

from mace_core.errors import MaceError
from mace_core.json_types import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Costs = TypeVar("Costs", bound="DataclassInstance")


def read_costs(defaults: Costs, options: Json, place: str) -> Costs:
    """Return the costs that stand under an option `costs`; numbers that it leaves out have their defaults.

    defaults: of a dataclass of floats.  place: where the options stand, for messages.
    Raises one MaceError with every name that is unknown and every value that is no positive number.
    """
    if "costs" not in options:
        return defaults
    stated, place = options["costs"], f"{place}: costs"
    names = [field.name for field in fields(defaults)]
    if not isinstance(stated, dict):
        raise MaceError(place, f"{stated!r:.40} is no mapping", f"write some of {', '.join(names)}")
    faults = [
        f"{place}: {str(name)[:40]!r} is unknown; choose among {', '.join(names)}"
        for name in stated
        if name not in names
    ]
    faults += [
        f"{place}: {name}: {value!r:.40} is no positive number; write one"
        for name, value in stated.items()
        if name in names and not _is_positive(value)
    ]
    if faults:
        raise MaceError.of(faults)
    return replace(defaults, **{str(name): float(value) for name, value in stated.items()})


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
