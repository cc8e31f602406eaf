"""Knows the chips: which generation of the MDLA each has, and how many cores of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from mace_core.errors import MaceError

GENERATIONS = ("1.5", "2.0", "3.0")
"""Generations whose rules the vendor's design guide states, the oldest first."""


@dataclass(frozen=True)
class Soc:
    """A chip.

    names: other numbers and market names of it.  generation: of its MDLA.
    cores: of its MDLA; None where no source says.  marks: by figure, "found" or "inferred".
    """

    name: str
    names: tuple[str, ...]
    generation: str
    cores: int | None
    marks: Mapping[str, str]


@cache
def read_socs() -> Mapping[str, Soc]:
    """Return every chip of the table by its number."""
    import yaml

    text = (files("mace_target_mdla") / "socs.yml").read_text(encoding="utf-8")
    socs = {
        name: Soc(name, tuple(row["names"]), row["generation"], row["cores"], MappingProxyType(row["marks"]))
        for name, row in yaml.safe_load(text).items()
    }
    return MappingProxyType(socs)


def find_soc(text: str, place: str) -> Soc:
    """Return the chip of a number or a name; letters' case does not count.

    MaceError, at `place`, for a name that the table does not have, and for a generation without rules.
    """
    by_name: dict[str, Soc] = {}
    for listed in read_socs().values():
        by_name.update({_normalize(name): listed for name in (listed.name, *listed.names)})
    soc = by_name.get(_normalize(text))
    if soc is None:
        close = get_close_matches(_normalize(text), by_name, 1)
        known = ", ".join(soc.name for soc in read_socs().values() if soc.generation in GENERATIONS)
        hint = f"did you mean {by_name[close[0]].name}? " if close else ""
        remedy = f"{hint}known are {known}; for another chip state `generation` instead"
        raise MaceError(place, f"soc: no chip {text[:40]!r} is known", remedy)
    if soc.generation not in GENERATIONS:
        raise MaceError(
            place,
            f"soc: {soc.name} has MDLA {soc.generation}, whose rules are not published",
            f"choose a chip with MDLA {', '.join(GENERATIONS)}, or build for the CPU",
        )
    return soc


def _normalize(name: str) -> str:
    return "".join(name.lower().split())
