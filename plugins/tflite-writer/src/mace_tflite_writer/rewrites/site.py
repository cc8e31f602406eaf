"""A node that a rewrite looks at, with what its new nodes are made with."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from mace_core.attributes import Attributes, AttributeValues
from mace_core.graph_builder import Builder
from mace_core.ir import Graph, Node, Storage, Tensor
from mace_core.rewrite import Match, rewrite
from mace_tflite_writer.writer import refuses

A = TypeVar("A", bound=Attributes)


@dataclass(frozen=True)
class Site:
    """A node of the old graph, whose inputs are tensors of the new one."""

    match: Match
    old: Graph

    @property
    def node(self) -> Node:
        """The node."""
        return self.match.node

    @property
    def builder(self) -> Builder:
        """The builder of the new graph."""
        return self.match.builder

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.builder.tensors[self.node.inputs[0]]

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.old.tensors[self.node.outputs[0]]

    def input(self, index: int) -> Tensor | None:
        """Return an input; None if it is absent."""
        inputs = self.node.inputs
        return self.builder.tensors[inputs[index]] if index < len(inputs) and inputs[index] else None

    def attributes(self, kind: type[A]) -> A:
        """Return the node's attributes as those of a family of ops."""
        return self.node.attributes(kind)

    @property
    def is_refused(self) -> bool:
        """Whether the format has no operator for the node as it is."""
        # A view of both, because a copy for each node would take time with the square of the graph's size.
        # A ChainMap writes to its first mapping only, so that the second may be one that cannot be written.
        tensors = ChainMap(self.builder.tensors, cast("dict[str, Tensor]", self.old.tensors))
        graph = Graph(self.old.name, (self.node,), tensors, self.builder.weights, (), ())
        return refuses(self.node, graph) is not None

    def inner(
        self,
        op: str,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        storage: Storage | None = None,
    ) -> str:
        """Add a node whose one result only the new nodes read; storage: how it stores real numbers."""
        name = self.builder.reserve_output(f"{self.node.outputs[0]}/{op}", storage)
        return self.builder.one(op, inputs, attrs, outputs=[name], like=self.node)

    def last(self, op: str, inputs: Sequence[str], attrs: AttributeValues | None = None) -> tuple[str, ...]:
        """Add the node that gives the old node's results."""
        return self.match.emit(op, inputs, attrs)


SiteRule = Callable[[Site], "Sequence[str] | None"]
"""Names of the tensors that replace a node's results; None to keep the node."""


def rewrite_sites(graph: Graph, rule: SiteRule) -> Graph:
    """Rebuild a graph, each node as the rule says."""
    return rewrite(graph, lambda match: rule(Site(match, graph)))
