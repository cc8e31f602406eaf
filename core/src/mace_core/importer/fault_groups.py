"""Joins the faults of nodes that are refused for one reason: a line for each reason, not for each node."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.errors import MaceError

SHOWN = 3
"""Number of nodes of a group whose names are printed: enough to find them, few enough to read."""


@dataclass(frozen=True)
class FaultyNode:
    """The node of a model file that a fault is about.

    location: the name of the file.  noun: what its format calls a node.  op: the operator.
    """

    location: str
    noun: str
    name: str
    op: str

    def __str__(self) -> str:
        """Return the beginning of errors about the node."""
        return f"{self.location}: {self.noun} {self.name!r} ({self.op})"


class FaultGroups:
    """Collects faults, and raises them as one error with a line for each operator and reason."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], dict[str, FaultyNode | None]] = {}

    def add(self, node: FaultyNode | None, problem: str) -> None:
        """Add a fault.

        node: None for a fault of the file; the problem then has its place.
        problem: what is wrong, with the remedy.
        """
        place = (node.location, node.op) if node else ("", "")
        group = self._groups.setdefault((*place, problem), {})
        group[node.name if node else ""] = node

    def check(self) -> None:
        """Raise one MaceError with all faults, in the order in which their groups began; return if none."""
        if self._groups:
            lines = (_describe(problem, group) for (*_, problem), group in self._groups.items())
            raise MaceError.of(lines)


def _describe(problem: str, group: dict[str, FaultyNode | None]) -> str:
    first = next(iter(group.values()))
    if first is None:
        return problem
    if len(group) == 1:
        return f"{first}: {problem}"
    names = ", ".join(repr(name) for name in list(group)[:SHOWN])
    more = f" and {len(group) - SHOWN} more" if len(group) > SHOWN else ""
    return f"{first.location}: {len(group)} {first.noun}s ({first.op}), {names}{more}: {problem}"
