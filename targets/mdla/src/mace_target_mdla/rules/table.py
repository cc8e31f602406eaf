"""Reads the tables of rules, in which a later generation inherits what it does not state itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

Limits = Mapping[str, Any]
"""The numbers and names of a rule, as its check reads them."""


class Verdict(Enum):
    """What becomes of a node, the best first."""

    HARDWARE = "hardware"
    SOFTWARE = "software"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"

    @property
    def rank(self) -> int:
        """Its place in the order; the verdict of several rules is that of the maximum."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class RuleSource:
    """Where a rule stands.

    mark: "seed", "found" or "inferred", see sources.yml.  document: a key of sources.yml.  place: in it.
    """

    mark: str
    document: str
    place: str

    def __str__(self) -> str:
        return f"{self.document} {self.place}"


@dataclass(frozen=True)
class OperatorEntry:
    """What a table says of an operator.

    since: the generation from which the hardware computes it; "" where the table names none.
    """

    verdict: Verdict
    source: RuleSource
    since: str = ""


@dataclass(frozen=True)
class Rule:
    """A limit of the hardware or of its compiler.

    check: a name of `checks.CHECKS`, which says whether a node keeps to it.
    operators: those that it is about; () for all.
    verdict: of a node that breaks it; HARDWARE where the node only costs more.
    is_computed: whether a node that breaks it runs on the device in any case, so that it is never refused.
    code: of the refusal.  sentence: about such a node, with {violation} for what the check found.
    """

    id: str
    check: str
    limits: Limits
    operators: tuple[str, ...]
    verdict: Verdict
    is_computed: bool
    code: str
    sentence: str
    remedy: str
    source: RuleSource


@dataclass(frozen=True)
class RuleTable:
    """Everything that is known of a generation.

    operators: by TFLite's name.  unlisted: what holds for every other operator.
    rules: by their identifiers.
    """

    generation: str
    operators: Mapping[str, OperatorEntry]
    unlisted: OperatorEntry
    rules: Mapping[str, Rule] = field(default_factory=dict)


@cache
def read_table(generation: str) -> RuleTable:
    """Return the rules of a generation, those that it inherits among them."""
    document = _read(f"generation_{generation.replace('.', '_')}.yml")
    before = read_table(document["inherits"]) if "inherits" in document else None
    # The guide states the first generation of an operator; later ones keep it unless a row says otherwise.
    operators = dict(before.operators) if before else {}
    operators.update({name: _read_operator(entry) for name, entry in document["operators"].items()})
    rules = dict(before.rules) if before else {}
    for dropped in document.get("drops", ()):
        del rules[dropped]
    rules.update({entry["id"]: _read_rule(entry) for entry in document["rules"]})
    unlisted = _read_operator(document["unlisted"]) if "unlisted" in document else None
    if unlisted is None:
        assert before
        unlisted = before.unlisted
    return RuleTable(generation, MappingProxyType(operators), unlisted, MappingProxyType(rules))


@cache
def read_sources() -> Mapping[str, Mapping[str, str]]:
    """Return the documents that the rules cite: mark, title, and what a place in them is."""
    return MappingProxyType(_read("sources.yml"))


def _read(name: str) -> dict[str, Any]:
    import yaml

    document: dict[str, Any] = yaml.safe_load((files(__package__) / name).read_text(encoding="utf-8"))
    return document


def _read_source(text: str) -> RuleSource:
    document, _, place = text.partition(" ")
    return RuleSource(read_sources()[document]["mark"], document, place)


def _read_operator(entry: Mapping[str, str]) -> OperatorEntry:
    return OperatorEntry(Verdict(entry["verdict"]), _read_source(entry["source"]), entry.get("since", ""))


def _read_rule(entry: Mapping[str, Any]) -> Rule:
    return Rule(
        entry["id"],
        entry["check"],
        MappingProxyType(entry.get("limits", {})),
        tuple(entry.get("operators", ())),
        Verdict(entry["verdict"]),
        bool(entry.get("is_computed", entry["verdict"] in ("hardware", "software"))),
        entry["code"],
        entry["sentence"],
        entry["remedy"],
        _read_source(entry["source"]),
    )
