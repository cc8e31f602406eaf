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
    """A node that a rule looks at; its inputs are tensors of the new graph.

    builder: that of the new graph.  uses: how often each tensor of the *old* graph is read.
    """

    node: Node
    builder: Builder
    uses: Mapping[str, int]

    def is_read_once(self, tensor: str) -> bool:
        """Tell whether one node alone reads a tensor; so it is with one that a rule has made."""
        return self.uses.get(tensor, 1) == 1

    def sole_producer(self, index: int, *ops: str) -> Node | None:
        """Return the node that computes input `index`, if only this node reads it, else None.

        ops: the names of ops that are accepted; all if none is given.
        """
        # A producer whose result is rounded to be stored is hidden: a rule that merges it into another node
        # would lose that rounding, and with it the numbers of a quantized model.
        inputs = self.node.inputs
        producer = self.builder.producer(inputs[index]) if index < len(inputs) and inputs[index] else None
        if producer is None or (ops and producer.op.name not in ops) or not self.is_read_once(inputs[index]):
            return None
        return None if self.is_rounded(inputs[index]) else producer

    def is_rounded(self, tensor: str) -> bool:
        """Tell whether the node that computes a tensor rounds its result to store it as integers."""
        node, storage = self.builder.producer(tensor), self.builder.tensors[tensor].storage
        return (
            node is not None
            and storage is not None
            and not (node.op.moves and self.builder.tensors[node.inputs[0]].storage == storage)
        )

    def constant(self, index: int) -> Array | None:
        """Return the elements of input `index` if it is a constant that is not quantized, else None."""
        inputs = self.node.inputs
        return self.builder.constant(inputs[index]) if index < len(inputs) and inputs[index] else None

    def emit(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
    ) -> tuple[str, ...]:
        """Add a node with this node's outputs, name and sources."""
        return self.builder.add(op, inputs, attrs, outputs=self.node.outputs, like=self.node)

    def merge_origins(self, other: Node) -> Node:
        """Return the node with the sources of another one as well, for a node that replaces both."""
        return replace(self.node, sources=tuple(dict.fromkeys((*other.sources, *self.node.sources))))

    def shape(self, index: int) -> Shape:
        """Return the shape of input `index`."""
        return self.builder.shape(self.node.inputs[index])


Rule = Callable[[Match], Sequence[str] | None]
"""Names of the tensors that replace the node's outputs, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Rebuild a graph in order, each node as the rule says; nodes that nothing reads disappear."""
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
            # Counted, because a rule must not merge a node into one reader while others still need it.
            if old != by:
                uses[by] = uses[old] + (uses[by] - 1 if by in uses else 0)
    return builder.finish([renamed.get(o, o) for o in graph.outputs], graph.outputs)


def copy_nodes(graph: Graph, builder: Builder, renamed: Mapping[str, str]) -> dict[str, str]:
    """Add the weights and nodes of a graph to a builder.

    Returns the names of its tensors in the builder, where they differ.

    renamed: tensors of the builder that its nodes read instead. A node whose inputs become constant is
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
