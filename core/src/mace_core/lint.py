"""Describes what would become of a model on a target, before anything is built: verdicts, costs, reasons.

Targets make these reports (`Target.lint`); `lint_run` asks them, and `lint_tables` prints them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mace_core.json_types import Json

VERDICTS = MappingProxyType(
    {
        "hardware": "the device computes the node by its own units",
        "software": "the device computes the node by software or by extra copies",
        "other-device": "another unit of the same chip computes the node",
        "unknown": "what is published of the device does not say",
        "unsupported": "the target does not take the node",
    }
)
"""The verdicts on a node, the best first. They are stable: programs compare them."""


@dataclass(frozen=True)
class Interval:
    """An estimate between two bounds, both of which may be the same.

    high: math.inf where nothing bounds it.
    provenance: the source of each number that it was computed from.
    """

    low: float
    high: float
    provenance: tuple[str, ...] = ()

    def __add__(self, other: Interval) -> Interval:
        provenance = tuple(dict.fromkeys((*self.provenance, *other.provenance)))
        return Interval(self.low + other.low, self.high + other.high, provenance)

    def as_json(self) -> Json:
        """Return its bounds, None for one that nothing bounds, and what they stand on."""
        high = None if math.isinf(self.high) else self.high
        return {"low": self.low, "high": high, "provenance": self.provenance}


@dataclass(frozen=True)
class LintFinding:
    """A rule that concerns a node.

    rule: its stable identifier.  verdict: one of VERDICTS, what the rule alone makes of the node.
    remedy: what the user can change; "" where nothing would help.
    source: where the rule is stated, and what that is worth; "" where nobody states it.
    """

    rule: str
    verdict: str
    sentence: str
    remedy: str = ""
    source: str = ""

    def as_json(self) -> Json:
        """Return its fields."""
        return {
            "rule": self.rule,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "source": self.source,
        }


@dataclass(frozen=True)
class LintNode:
    """What becomes of one node.

    operator: the op in the vendor's words.  verdict: one of VERDICTS.  is_taken: whether the target takes it.
    group: nodes with the same text are expected to be computed in one go; "" where nothing is known.
    layout: of the result in the device's memory, in the vendor's words.
    figures: estimates by name: "macs", "cycles", "bytes", "ms" ...
    """

    node: str
    op: str
    verdict: str
    is_taken: bool
    operator: str = ""
    findings: tuple[LintFinding, ...] = ()
    group: str = ""
    layout: str = ""
    figures: Mapping[str, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"no verdict {self.verdict!r}; the verdicts are {', '.join(VERDICTS)}")

    def as_json(self) -> Json:
        """Return its fields."""
        return {
            "node": self.node,
            "op": self.op,
            "operator": self.operator,
            "verdict": self.verdict,
            "taken": self.is_taken,
            "group": self.group,
            "layout": self.layout,
            "figures": {name: figure.as_json() for name, figure in self.figures.items()},
            "findings": [finding.as_json() for finding in self.findings],
        }


@dataclass(frozen=True)
class LintReport:
    """What becomes of a graph on a device.

    device: the chip, as the target's options name it; "" where there is no choice.
    regions: parts that the target would compute.
    figures: estimates for all that the target takes.  notes: what the reader must know of the figures.
    """

    model: str
    target: str
    device: str
    nodes: tuple[LintNode, ...]
    regions: int
    figures: Mapping[str, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def share(self, figure: str = "") -> float | None:
        """Return the share of nodes, or of a figure's sum, that the target takes; None of nothing."""
        weights = [_weigh(node, figure) for node in self.nodes]
        total = sum(weights)
        if not total:
            return None
        taken = sum(weight for weight, node in zip(weights, self.nodes, strict=True) if node.is_taken)
        return taken / total

    def as_json(self) -> Json:
        """Return it as `mace lint --json` prints it."""
        return {
            "model": self.model,
            "target": self.target,
            "device": self.device,
            "regions": self.regions,
            "share_of_nodes": self.share(),
            "share_of_macs": self.share("macs"),
            "figures": {name: figure.as_json() for name, figure in self.figures.items()},
            "notes": self.notes,
            "nodes": [node.as_json() for node in self.nodes],
        }


@dataclass(frozen=True)
class PlannedOperation:
    """An operation of a vendor's plan: its operator, and the unit that computes it in the vendor's words."""

    operator: str
    unit: str


@dataclass(frozen=True)
class VendorPlan:
    """The plan of a vendor's compiler, as far as a target can read it.

    operations: in the plan's order.  device_units: the units that belong to the target.
    unread: lines that the target did not understand.
    """

    operations: tuple[PlannedOperation, ...]
    device_units: frozenset[str]
    unread: tuple[str, ...] = ()


def _weigh(node: LintNode, figure: str) -> float:
    if not figure:
        return 1.0
    return node.figures[figure].low if figure in node.figures else 0.0
