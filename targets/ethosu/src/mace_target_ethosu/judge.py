"""Judges operators by the rules of a generation, which are data: rules/*.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from mace_core.refusal import Refusal
from mace_target_ethosu.checks import all_checks
from mace_target_ethosu.checks.check import Check, Limits
from mace_target_ethosu.operators import OperatorView

GENERATIONS: Mapping[str, str] = MappingProxyType({"u55": "u55", "u65": "u55", "u85": "u85"})
"""Generation of the NPU -> its table of rules; Ethos-U55 and U65 share one."""


@dataclass(frozen=True)
class Constraint:
    """One constraint that Vela states, as constraints.yml has it.

    sentence: Vela's own.  check: None where it holds for everything that MACE writes.
    """

    name: str
    sentence: str
    check: Check | None
    limits: Limits
    code: str
    remedy: str

    def judge(self, operator: OperatorView) -> Refusal | None:
        """Return a refusal if an operator breaks the constraint."""
        fault = self.check(operator, self.limits) if self.check else None
        if fault is None:
            return None
        # Sentences of several lines list cases, of which the fault itself names the one that it is about.
        first_line = self.sentence.splitlines()[0].rstrip(":.")
        return Refusal(self.code, f"{fault} (Vela, {self.name}: {first_line})", self.remedy)


@dataclass(frozen=True)
class Rules:
    """The rules of a generation.

    operators: name of an operator -> all constraints that hold for it.
    """

    generation: str
    operators: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)

    def judge(self, operator: OperatorView) -> Refusal | None:
        """Return why the NPU does not compute an operator; None if it does."""
        constraints = self.operators.get(operator.code)
        if constraints is None:
            return Refusal(
                "unsupported-op",
                f"Ethos-{self.generation.upper()} has no {operator.code}",
                "replace it, or leave it to another target",
            )
        # A generator, because later checks read all weights and the first refusal is enough.
        refusals = (constraint.judge(operator) for constraint in constraints)
        return next(filter(None, refusals), None)


@cache
def load_rules(generation: str) -> Rules:
    """Return the rules of a generation: "u55", "u65" or "u85"."""
    constraints = {name: _constraint(name, row) for name, row in _read("constraints")["constraints"].items()}
    table = _read(GENERATIONS[generation])
    operators = {}
    for code, specific in table["operators"].items():
        general = [name for name, exceptions in table["general"].items() if code not in exceptions]
        operators[code] = tuple(constraints[name] for name in (*general, *specific))
    return Rules(generation, MappingProxyType(operators))


def _constraint(name: str, row: Mapping[str, Any]) -> Constraint:
    check = None if "holds" in row else all_checks()[row["check"]]
    return Constraint(
        name,
        row["sentence"],
        check,
        MappingProxyType(row.get("limits", {})),
        row.get("code", "other"),
        row.get("remedy", ""),
    )


def _read(name: str) -> Any:
    return yaml.safe_load((files("mace_target_ethosu") / f"rules/{name}.yml").read_text("utf-8"))
