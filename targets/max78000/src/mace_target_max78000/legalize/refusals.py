"""Collects what the accelerator cannot do, so that a user sees all of it at once."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.errors import MaceError
from mace_core.ir import Node
from mace_core.rewrite import Match, Rule


class NoEquivalentError(ValueError):
    """The hardware has no equivalent of a node.

    The text says what is wrong and, after a semicolon, what to do. It is an answer of a rule, not a failure:
    `Refusals` collects it, and the rules go on, so that later nodes are looked at as well.
    """


class Refusals:
    """What is wrong with a graph, node by node, in the order in which it was found."""

    def __init__(self) -> None:
        # A dictionary as an ordered set: several rules may refuse one node for the same reason.
        self._reasons: dict[str, None] = {}

    def add(self, place: str, text: str) -> None:
        """Record what is wrong at a place."""
        self._reasons[f"{place}: {text}"] = None

    def add_node(self, node: Node, text: str) -> None:
        """Record what is wrong with a node."""
        self.add(f"layer {node.name!r} ({node.op.name})", text)

    def check(self) -> None:
        """Raise one MaceError with everything that was recorded, if there is anything."""
        if self._reasons:
            raise MaceError.of(self._reasons)

    def collect(self, rule: Rule) -> Rule:
        """Return the rule; where it refuses a node, the reason is recorded and the node stays."""

        def attempt(match: Match) -> Sequence[str] | None:
            try:
                return rule(match)
            except NoEquivalentError as error:
                self.add_node(match.node, str(error))
                return None

        return attempt
