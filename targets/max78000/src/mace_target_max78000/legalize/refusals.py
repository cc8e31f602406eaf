"""Collects what the accelerator cannot do, so that a user sees all of it at once."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.errors import MaceError
from mace_core.rewrite import Match, Rule


class RefusedError(ValueError):  # an answer, not a failure
    """A node cannot be computed; the text says why, and after a semicolon what to do."""


class Refusals:
    """What is wrong with a graph, node by node."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, place: str, text: str) -> None:
        """Note a fault; one that is known already is not repeated."""
        self._found[f"{place}: {text}"] = None

    def check(self) -> None:
        """Raise one MaceError with every fault, if there is any."""
        if self._found:
            raise MaceError.of(self._found)

    def noting(self, rule: Rule) -> Rule:
        """The rule, with what it refuses noted and left as it is."""

        def attempt(match: Match) -> Sequence[str] | None:
            try:
                return rule(match)
            except RefusedError as error:
                self.add(f"layer {match.node.name!r} ({match.node.op.name})", str(error))
                return None

        return attempt
