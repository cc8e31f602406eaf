"""Records which candidate was chosen for each node, as data for programs and reports.

The module stands apart from `mace_core.candidates`, which chooses by lowering: programs keep selections, and
lowerings make programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mace_core.json_types import Json, JsonObject


@dataclass(frozen=True)
class NodeKey:
    """Identifies a node in tuning files; shapes: see `mace_core.tuning.shape_key`."""

    target: str
    node: str
    op: str
    shapes: str


@dataclass(frozen=True)
class CandidateChoice:
    """The candidate that computes a node at a level, and the reason for it.

    costs: those of every candidate that takes the node, by name.
    """

    level: str
    candidate: str
    reason: str
    costs: Mapping[str, float]

    @classmethod
    def of_json(cls, described: JsonObject) -> CandidateChoice:
        """Read a choice that `Selection.as_json` wrote."""
        level, candidate, reason = (described.string(key) for key in ("level", "candidate", "reason"))
        costs = described.object("costs")
        return cls(level, candidate, reason, {name: costs.number(name) for name in costs.values})


@dataclass(frozen=True)
class Selection:
    """The choices for a node that has several candidates.

    key: identifies the node in tuning files.  unit: that of the costs.
    refused: by candidate, why it does not take the node.
    """

    key: NodeKey
    unit: str
    choices: tuple[CandidateChoice, ...]
    refused: Mapping[str, str]

    def as_json(self) -> Json:
        """Return it as a JSON object."""
        choices = [
            {"level": c.level, "candidate": c.candidate, "reason": c.reason, "costs": dict(c.costs)}
            for c in self.choices
        ]
        return {**asdict(self.key), "unit": self.unit, "choices": choices, "refused": dict(self.refused)}

    @classmethod
    def of_json(cls, described: JsonObject) -> Selection:
        """Read what `as_json` wrote."""
        key = NodeKey(*(described.string(name) for name in ("target", "node", "op", "shapes")))
        refused = described.object("refused")
        return cls(
            key,
            described.string("unit"),
            tuple(map(CandidateChoice.of_json, described.objects("choices"))),
            {name: refused.string(name) for name in refused.values},
        )
