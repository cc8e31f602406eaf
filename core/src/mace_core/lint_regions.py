"""Counts the regions that a target would compute, from the nodes that it takes."""

from __future__ import annotations

from collections.abc import Collection

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.ir import Graph, Node
from mace_core.partition import partition


class _Named(Target):
    """Takes the nodes of some names; it is asked what it takes, and never compiles."""

    name = "named"
    device = "named"

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None for a node of these names."""
        return None if node.name in self.names else Refusal("other", "it is not named")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Raise, because nobody asks for it."""
        raise NotImplementedError


def count_regions(graph: Graph, taken: Collection[str]) -> int:
    """Return how many regions the nodes of these names form, if another target computes the rest."""
    target, others = _Named(frozenset(taken)), _Named(frozenset(node.name for node in graph.nodes))
    return sum(region.target is target for region in partition(graph, [target, others]).regions)
