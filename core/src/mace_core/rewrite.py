"""Rewrites a graph by a rule that looks at one node at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mace_core.attributes import AttributeValues
from mace_core.graph_builder import Builder, rename_tensors
from mace_core.ir import Array, Graph, Node, Shape
from mace_core.ops.op import Op


@dataclass(frozen=True)
class Match:
    """A node that a rule looks at, its inputs already those of the new graph.

    uses: how often each tensor of the *old* graph is read.
    """

    node: Node
    new: Builder
    uses: Mapping[str, int]

    def sole_producer(self, index: int, *ops: str) -> Node | None:
        """Return the node that computes input `index`, if its op is listed (or none is) and nobody else reads it.

        None where its result is rounded to be stored: without it, that rounding would be lost.
        """
        inputs = self.node.inputs
        producer = self.new.producer(inputs[index]) if index < len(inputs) and inputs[index] else None
        if producer is None or (ops and producer.op.name not in ops) or self.uses.get(inputs[index], 1) != 1:
            return None
        return None if self._rounds(producer, inputs[index]) else producer

    def _rounds(self, node: Node, result: str) -> bool:
        storage = self.new.tensors[result].storage
        return storage is not None and not (
            node.op.moves and self.new.tensors[node.inputs[0]].storage == storage
        )

    def constant(self, index: int) -> Array | None:
        """The data of input `index` if it is a constant that holds its numbers as they are."""
        inputs = self.node.inputs
        return self.new.constant(inputs[index]) if index < len(inputs) and inputs[index] else None

    def emit(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
    ) -> tuple[str, ...]:
        """Add a node that computes what this one computes."""
        return self.new.add(op, inputs, attrs, outputs=self.node.outputs, like=self.node)

    def merge_origins(self, other: Node) -> Node:
        """The node with the sources of another as well: what a node that computes both stands for."""
        return replace(self.node, sources=tuple(dict.fromkeys((*other.sources, *self.node.sources))))

    def shape(self, index: int) -> Shape:
        """Shape of input `index`."""
        return self.new.shape(self.node.inputs[index])


Rule = Callable[[Match], Sequence[str] | None]
"""Names of the tensors that replace the node's outputs, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Rebuild a graph in order, each node as the rule says; what the rule leaves unread disappears."""
    builder = Builder(graph.name)
    for name in graph.inputs:
        builder.tensors[name] = graph.tensors[name]
        builder.inputs.append(name)
    for name, array in graph.weights.items():
        builder.weights[name], builder.tensors[name] = array, graph.tensors[name]
    # A new tensor must not take the name of one that is still to come.
    builder.reserved = frozenset(graph.tensors)
    builder.storages = {n: t.storage for n, t in graph.tensors.items() if t.storage}
    builder.states = list(graph.states)
    renamed: dict[str, str] = {}
    uses = graph.uses()
    for node in graph.nodes:
        node = rename_tensors(node, renamed, outputs=False)
        result = rule(Match(node, builder, uses))
        if result is None and _is_unchanged(node, builder, graph):
            result = builder.keep(node, [graph.tensors[o] for o in node.outputs])
        elif result is None:
            result = builder.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
        renamed.update((old, by) for old, by in zip(node.outputs, result, strict=False) if old != by)
        for old, by in zip(node.outputs, result, strict=False):
            # Readers of the old tensor now read this one; if it existed, this node no longer does.
            if old != by:
                uses[by] = uses[old] + (uses[by] - 1 if by in uses else 0)
    return builder.finish([renamed.get(o, o) for o in graph.outputs], graph.outputs)


def copy_nodes(graph: Graph, builder: Builder, renamed: Mapping[str, str]) -> dict[str, str]:
    """Add the weights and nodes of a graph to a builder.

    Return what its tensors are called there, where that is something else.

    renamed: tensors of the builder that its nodes read in place of their own. What becomes constant is
    computed.
    """
    renamed = dict(renamed)
    for name, array in graph.weights.items():
        builder.weights[name], builder.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs = [renamed.get(name, name) for name in node.inputs]
        outputs = builder.add(node.op, inputs, node.attrs, outputs=node.outputs, like=node)
        renamed.update((old, by) for old, by in zip(node.outputs, outputs, strict=True) if old != by)
    return renamed


def _is_unchanged(node: Node, builder: Builder, graph: Graph) -> bool:
    """Tell whether a node reads in the new graph what it reads in the old one."""
    for name in filter(None, node.inputs):
        before, after = graph.tensors.get(name), builder.tensors[name]
        if (after is not before and after != before) or (name in builder.weights) != (name in graph.weights):
            return False
    return True
