"""Divides a graph into regions, each for the first target that takes its nodes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Generic, TypeVar

from mace_core.api import Region, Target
from mace_core.errors import MaceError
from mace_core.ir import Graph, Node
from mace_core.refusal import NodeRefusal, Refusal


@dataclass(frozen=True)
class Partition:
    """The regions of a graph in an order in which they can run, and every refusal that led to them."""

    regions: tuple[Region, ...]
    refusals: tuple[NodeRefusal, ...]


Owner = TypeVar("Owner", bound=Hashable)
"""Who computes a node: a target, or whether one does."""

Refusals = dict[tuple[str, str], Refusal]
"""Refusals by the names of node and target."""


def partition(graph: Graph, targets: Sequence[Target]) -> Partition:
    """Give every node to the first target that takes it, in convex regions as large as they get.

    Raises one MaceError that lists every node that no target takes, with each target's reason.
    """
    if targets[0].scope == "model":
        return _check_whole_model(graph, targets[0])
    refusals: Refusals = {}
    # Every target is asked about every node, not only until one takes it: a target may lose nodes below, and
    # the ledger of `mace explain` shows all refusals.
    options = {node.name: _takers(node, graph, targets, refusals) for node in graph.nodes}
    stuck = [n for n in graph.nodes if not options[n.name]]
    if stuck:
        raise MaceError.of(_complaint(graph, node, targets, refusals) for node in stuck)
    while True:
        regions = _regions(graph, {name: takers[0] for name, takers in options.items()})
        poor = [
            region
            for region in regions
            if not region.target.worth(region.graph)
            and all(len(options[node.name]) > 1 for node in region.graph.nodes)
        ]
        # A region that is not worth a change of device goes to the next target that takes its nodes. That may
        # join two regions of that target or divide one of another, so all regions are formed again. Each
        # round takes a target away from some node, so that this ends.
        if not poor:
            return Partition(tuple(regions), _in_order(graph, refusals))
        for region in poor:
            for node in region.graph.nodes:
                refusals[node.name, region.target.name] = Refusal(
                    "not-worth-it", "not worth a change of device"
                )
                options[node.name] = options[node.name][1:]


def _check_whole_model(graph: Graph, target: Target) -> Partition:
    """Give a target the whole graph; MaceError with every node that it refuses."""
    refusals: Refusals = {}
    takers = [(node, _takers(node, graph, (target,), refusals)) for node in graph.nodes]
    if refusals:
        raise MaceError.of(
            _complaint(graph, node, (target,), refusals)
            for node, targets_taking in takers
            if not targets_taking
        )
    return Partition((Region(target, graph),), ())


def _in_order(graph: Graph, refusals: Refusals) -> tuple[NodeRefusal, ...]:
    ops = {node.name: node.op.name for node in graph.nodes}
    return tuple(
        NodeRefusal(node, ops[node], target, refusal) for (node, target), refusal in refusals.items()
    )


def _takers(node: Node, graph: Graph, targets: Sequence[Target], refusals: Refusals) -> list[Target]:
    takers = []
    for target in targets:
        refusal = target.refuses(node, graph)
        if refusal is None:
            takers.append(target)
        else:
            refusals[node.name, target.name] = refusal
    return takers


def _complaint(graph: Graph, node: Node, targets: Sequence[Target], refusals: Refusals) -> str:
    reasons = "; ".join(f"{t.name}: {refusals[node.name, t.name]}" for t in targets)
    return f"{graph.name}: node {node.name!r} ({node.op.name}): no target takes it: {reasons}"


def count_regions(graph: Graph, taken: Collection[str]) -> int:
    """Return how many regions the nodes of these names form, if another target computes the rest."""
    grown, _ = _grow(graph, {node.name: node.name in taken for node in graph.nodes})
    return sum(region.owner for region in grown)


@dataclass
class _Growing(Generic[Owner]):
    """A region that nodes are added to.

    rank: its number among the regions of its owner. The regions of one owner form a chain: each was begun
    because a path leads from the one before it to what it reads.
    before: by owner, how many of its regions must run first. A chain is cut at one place, so a count says
    which.
    """

    owner: Owner
    rank: int
    nodes: list[Node] = field(default_factory=list)
    before: dict[Owner, int] = field(default_factory=dict)

    def runs_after(self, other: _Growing[Owner]) -> bool:
        """Tell whether a path leads from the other region to this one."""
        return self.before.get(other.owner, 0) > other.rank

    def follow(self, counts: Mapping[Owner, int]) -> bool:
        """Let this many regions of each owner run before this one; return whether that changes anything."""
        later = {owner: count for owner, count in counts.items() if count > self.before.get(owner, 0)}
        self.before.update(later)
        return bool(later)


def _regions(graph: Graph, takers: Mapping[str, Target]) -> list[Region]:
    grown, home = _grow(graph, takers)
    order = sorted(range(len(grown)), key=lambda n: (sum(grown[n].before.values()), n))
    inner = _read_in_one_region(graph, home, grown)
    regions = []
    for number, place in enumerate(order):
        region = grown[place]
        regions.append(
            Region(region.owner, _subgraph(graph, region.nodes, inner, f"{graph.name}_{place}"), number)
        )
    return regions


def _grow(graph: Graph, owners: Mapping[str, Owner]) -> tuple[list[_Growing[Owner]], dict[str, int]]:
    """Return the regions of the owners of nodes, and by computed tensor the number of its region."""
    grown: list[_Growing[Owner]] = []
    newest: dict[Owner, int] = {}
    home: dict[str, int] = {}
    for node in graph.nodes:
        owner = owners[node.name]
        feeding = [grown[number] for number in dict.fromkeys(home[i] for i in node.inputs if i in home)]
        number = _joinable(newest.get(owner), feeding, grown)
        if number == len(grown):
            rank = grown[newest[owner]].rank + 1 if owner in newest else 0
            grown.append(_Growing(owner, rank))
            newest[owner] = number
        _join(number, node, feeding, grown)
        home.update(dict.fromkeys(node.outputs, number))
    return grown, home


def _joinable(
    newest: int | None, feeding: Sequence[_Growing[Owner]], grown: Sequence[_Growing[Owner]]
) -> int:
    """Return the number of the newest region of the node's owner, or of a new region.

    A node may not join a region from which a path leads, through another region, back to the node: the two
    regions would wait for each other.
    """
    # Older regions of the owner need not be tried: they form a chain, so the path leads from them as well.
    if newest is None or any(f.runs_after(grown[newest]) for f in feeding):
        return len(grown)
    return newest


def _join(
    number: int, node: Node, feeding: Sequence[_Growing[Owner]], grown: Sequence[_Growing[Owner]]
) -> None:
    """Add a node to a region; it and all later regions then run after those that feed the node."""
    region = grown[number]
    region.nodes.append(node)
    changed = False
    for feeder in feeding:
        if feeder is not region:
            changed |= region.follow({**feeder.before, feeder.owner: feeder.rank + 1})
    # Nothing runs after a new region yet.
    if not changed or (number == len(grown) - 1 and len(region.nodes) == 1):
        return
    for other in grown:
        if other.runs_after(region):
            other.follow(region.before)


def _read_in_one_region(graph: Graph, home: Mapping[str, int], grown: Sequence[_Growing[Target]]) -> set[str]:
    """Return the computed tensors that only nodes of their own region read."""
    outside = set(graph.outputs)
    for number, region in enumerate(grown):
        for node in region.nodes:
            outside.update(i for i in node.inputs if home.get(i, number) != number)
    return set(home) - outside


def _subgraph(graph: Graph, nodes: Sequence[Node], inner: set[str], name: str) -> Graph:
    computed = [*chain.from_iterable(node.outputs for node in nodes)]
    read = dict.fromkeys(filter(None, chain.from_iterable(node.inputs for node in nodes)))
    known = {*computed, *graph.weights}
    inputs = tuple(i for i in read if i not in known)
    weights = {i: graph.weights[i] for i in read if i in graph.weights}
    tensors = {t: graph.tensors[t] for t in (*inputs, *weights, *computed)}
    outputs = tuple(o for o in computed if o not in inner)
    return Graph(
        name,
        tuple(nodes),
        MappingProxyType(tensors),
        MappingProxyType(weights),
        inputs,
        outputs,
        numerics=graph.numerics,
    )
