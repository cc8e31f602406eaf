"""Which target computes which part of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from mace_core.api import Region, Target
from mace_core.errors import MaceError
from mace_core.ir import Graph, Node


@dataclass(frozen=True)
class Split:
    """regions: in execution order.  refusals: (node, target) -> why the target did not take it."""

    regions: tuple[Region, ...]
    refusals: Mapping[tuple[str, str], str]


def split(graph: Graph, targets: Sequence[Target]) -> Split:
    """Give every node to the first target that takes it, in convex regions as large as they get.

    Raises one MaceError that lists every node that no target takes, with each target's reason.
    """
    refusals: dict[tuple[str, str], str] = {}
    options = {node.name: _takers(node, graph, targets, refusals) for node in graph.nodes}
    stuck = [n for n in graph.nodes if not options[n.name]]
    if stuck:
        raise MaceError.of(_complaint(graph, node, targets, refusals) for node in stuck)
    while True:
        parts = _regions(graph, {name: takers[0] for name, takers in options.items()})
        poor = [p for p in parts if not p.target.worth(p.graph) and all(len(options[n.name]) > 1 for n in p.graph.nodes)]
        if not poor:
            return Split(tuple(parts), MappingProxyType(refusals))
        for part in poor:
            for node in part.graph.nodes:
                refusals[node.name, part.target.name] = "not worth a switch of device"
                options[node.name] = options[node.name][1:]


def _takers(node: Node, graph: Graph, targets: Sequence[Target], refusals: dict[tuple[str, str], str]) -> list[Target]:
    takers = []
    for target in targets:
        reason = target.refuses(node, graph)
        if reason is None:
            takers.append(target)
        else:
            refusals[node.name, target.name] = reason
    return takers


def _complaint(graph: Graph, node: Node, targets: Sequence[Target], refusals: Mapping[tuple[str, str], str]) -> str:
    reasons = "; ".join(f"{t.name}: {refusals[node.name, t.name]}" for t in targets)
    return f"{graph.name}: node {node.name!r} ({node.op.name}): no target takes it: {reasons}"


@dataclass
class _Growing:
    """A region while nodes join it.  before: numbers of the regions that must run first, at any distance."""

    target: Target
    nodes: list[Node] = field(default_factory=list)
    before: set[int] = field(default_factory=set)


def _regions(graph: Graph, takers: Mapping[str, Target]) -> list[Region]:
    grown: list[_Growing] = []
    home: dict[str, int] = {}
    for node in graph.nodes:
        feeding = {home[i] for i in node.inputs if i in home}
        number = _joinable(takers[node.name], feeding, grown)
        if number == len(grown):
            grown.append(_Growing(takers[node.name]))
        region = grown[number]
        region.nodes.append(node)
        region.before |= {b for f in feeding - {number} for b in (f, *grown[f].before)}
        for other in grown:
            if number in other.before:
                other.before |= region.before
        home.update(dict.fromkeys(node.outputs, number))
    order = sorted(range(len(grown)), key=lambda n: (len(grown[n].before), n))
    return [Region(grown[n].target, _subgraph(graph, grown[n].nodes, f"{graph.name}_{n}")) for n in order]


def _joinable(target: Target, feeding: set[int], grown: Sequence[_Growing]) -> int:
    """The newest region of the target that no path leaves to reach one of the feeding regions; else a new number."""
    for number in reversed(range(len(grown))):
        leaves = any(number in grown[f].before for f in feeding - {number})
        if grown[number].target is target and not leaves:
            return number
    return len(grown)


def _subgraph(graph: Graph, nodes: Sequence[Node], name: str) -> Graph:
    made = {o for n in nodes for o in n.outputs}
    read = dict.fromkeys(i for n in nodes for i in n.inputs if i)
    inside = {n.name for n in nodes}
    others = {i for n in graph.nodes if n.name not in inside for i in n.inputs} | set(graph.outputs)
    inputs = tuple(i for i in read if i not in made and i not in graph.weights)
    weights = {i: graph.weights[i] for i in read if i in graph.weights}
    tensors = {t: graph.tensors[t] for t in (*inputs, *weights, *(o for n in nodes for o in n.outputs))}
    outputs = tuple(o for n in nodes for o in n.outputs if o in others)
    return Graph(name, tuple(nodes), MappingProxyType(tensors), MappingProxyType(weights), inputs, outputs)
