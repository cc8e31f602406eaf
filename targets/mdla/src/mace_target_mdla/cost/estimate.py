"""Puts cycles, traffic and fusion together: intervals for nodes, groups and a whole graph.

The lower end takes the optimistic fusion, all cores, and computing beside moving; the upper end takes the
safe fusion, one core, and moving after computing. Both are estimates from published peak rates; unvalidated
on hardware.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mace_core.ir import Graph, Node
from mace_core.lint import Interval
from mace_target_mdla.cost import layout as layouts
from mace_target_mdla.cost.cycles import NodeLoad, estimate_cycles
from mace_target_mdla.cost.fusion import predict_groups
from mace_target_mdla.cost.rates import DeviceRates, read_rates
from mace_target_mdla.cost.work import MacCount, count_macs
from mace_target_mdla.operation import TfliteOperation


@dataclass(frozen=True)
class NodeCost:
    """What one node costs alone, without fusion."""

    macs: MacCount
    layout: str
    cycles: Interval
    bytes: int
    weight_bytes: int
    milliseconds: Interval

    @property
    def wasted(self) -> float:
        """The share of products with numbers that only fill up channels."""
        return 1 - self.macs.useful / self.macs.padded if self.macs.padded else 0.0


@dataclass(frozen=True)
class GraphCost:
    """What the nodes that a target takes cost together.

    milliseconds: of the nodes with a rate, conversions and switches of device among them.
    bytes: of memory traffic.  unrated: operators without a published rate, one for each node.
    groups: by the name of a node, in the safe prediction.
    """

    milliseconds: Interval
    cycles: Interval
    bytes: Interval
    nodes: Mapping[str, NodeCost]
    groups: Mapping[str, int]
    unrated: tuple[str, ...] = ()


@dataclass
class _Group:
    """Sums over the nodes of a group; internal tensors move nothing."""

    cycles: Interval = field(default_factory=lambda: Interval(0, 0))
    bytes: int = 0


class CostModel:
    """Estimates the nodes of one graph on one chip.

    taken: names of the nodes that the target takes, in the graph's order.
    """

    def __init__(self, graph: Graph, taken: Sequence[str], rates: DeviceRates) -> None:
        self.graph = graph
        self.rates = rates
        self.layouts = layouts.choose_layouts(graph)
        chosen = set(taken)
        self.nodes = {node.name: node for node in graph.nodes if node.name in chosen}

    def estimate(self, regions: int) -> GraphCost:
        """Return the cost of all nodes that the target takes.

        regions: changes of device to count, two for each.
        """
        costs = {name: self._estimate_node(node) for name, node in self.nodes.items()}
        safe, hopeful = (
            predict_groups(self.graph, tuple(self.nodes), self.rates.generation, safe=is_safe)
            for is_safe in (True, False)
        )
        slow, fast = self._sum_groups(costs, safe), self._sum_groups(costs, hopeful)
        milliseconds = Interval(
            sum(self._fastest(group) for group in fast), sum(self._slowest(group) for group in slow)
        )
        switch = read_rates()["switch_ms"]
        moved = self._conversion_bytes()
        # Caches are synchronized in both directions (guide 686), hence 2. Conversions count at the upper end
        # alone, because the vendor's compiler can be asked to leave them out (guide 23 and 84).
        high = milliseconds.high + 2 * regions * switch["high"] + self.rates.milliseconds_of_bytes(moved)
        low = milliseconds.low + 2 * regions * switch["low"]
        unrated = [name for name, cost in costs.items() if math.isinf(cost.cycles.high)]
        return GraphCost(
            Interval(low, high, self._provenance(costs)),
            Interval(sum(g.cycles.low for g in fast), sum(g.cycles.high for g in slow)),
            Interval(sum(g.bytes for g in fast), sum(g.bytes for g in slow) + moved, (layouts.PROVENANCE,)),
            costs,
            safe,
            tuple(TfliteOperation.of(self.nodes[name], self.graph).operator for name in unrated),
        )

    def _estimate_node(self, node: Node) -> NodeCost:
        operation = TfliteOperation.of(node, self.graph)
        layout = self.layouts[operation.activations[0].name] if operation.activations else "16C"
        macs = count_macs(operation, layout)
        cycles = estimate_cycles(NodeLoad(operation, macs, self.rates))
        weights = sum(tensor.bytes for tensor in operation.inputs if operation.is_constant(tensor))
        moved = weights
        for tensor in (*operation.activations, *operation.outputs):
            moved += layouts.padded_bytes(tensor, self.layouts[tensor.name])
        if operation.operator in read_rates()["free"]:
            moved = 0
        group = _Group(cycles, moved)
        bounds = Interval(
            self._fastest(group),
            math.inf if math.isinf(cycles.high) else self._slowest(group),
            (*cycles.provenance, layouts.PROVENANCE, self.rates.megahertz.provenance),
        )
        result_layout = self.layouts[operation.outputs[0].name]
        return NodeCost(macs, result_layout, cycles, moved, weights, bounds)

    def _sum_groups(self, costs: Mapping[str, NodeCost], groups: Mapping[str, int]) -> list[_Group]:
        """Return each group's cycles, those of its slowest stage at the low end, and its traffic."""
        sums: dict[int, _Group] = defaultdict(_Group)
        internal = self._internal_tensors(groups)
        for name, number in groups.items():
            cost, group = costs[name], sums[number]
            # One open interval would make the sum say nothing; `mace lint` names what is left out.
            high = 0.0 if math.isinf(cost.cycles.high) else cost.cycles.high
            # Stages of a group are a pipeline: its slowest stage is a lower bound, their sum an upper one.
            group.cycles = Interval(max(group.cycles.low, cost.cycles.low), group.cycles.high + high)
            group.bytes += cost.bytes - self._internal_bytes(self.nodes[name], internal)
        return list(sums.values())

    def _internal_tensors(self, groups: Mapping[str, int]) -> frozenset[str]:
        """Return the tensors that pass from a node to another of its group and that nothing else reads."""
        producing: dict[str, int] = {}
        for name, node in self.nodes.items():
            producing.update(dict.fromkeys(node.outputs, groups[name]))
        uses = self.graph.uses()
        inner: set[str] = set()
        for name, node in self.nodes.items():
            inner.update(t for t in node.inputs if producing.get(t) == groups[name] and uses[t] == 1)
        return frozenset(inner)

    def _internal_bytes(self, node: Node, internal: frozenset[str]) -> int:
        if TfliteOperation.of(node, self.graph).operator in read_rates()["free"]:
            return 0
        names = [name for name in (*node.inputs, *node.outputs) if name in internal]
        return sum(layouts.padded_bytes(self.graph.tensors[name], self.layouts[name]) for name in names)

    def _fastest(self, group: _Group) -> float:
        # Several cores lower this end alone: how work is spread over them is not published.
        cycles = group.cycles.low / (self.rates.cores or 1)
        return max(self.rates.milliseconds_of_cycles(cycles), self.rates.milliseconds_of_bytes(group.bytes))

    def _slowest(self, group: _Group) -> float:
        moving = self.rates.milliseconds_of_bytes(group.bytes)
        return self.rates.milliseconds_of_cycles(group.cycles.high) + moving

    def _conversion_bytes(self) -> int:
        """Return the bytes that conversions at the edges of the target's regions move at most."""
        others = [node for node in self.graph.nodes if node.name not in self.nodes]
        computed = {*chain.from_iterable(node.outputs for node in self.nodes.values())}
        read_inside = {*chain.from_iterable(node.inputs for node in self.nodes.values())} - {""}
        read_outside = {*chain.from_iterable(node.inputs for node in others), *self.graph.outputs}
        crossing = (read_inside - computed - set(self.graph.weights)) | (computed & read_outside)
        return sum(
            layouts.conversion_bytes(self.graph.tensors[name], self.layouts[name]) for name in crossing
        )

    def _provenance(self, costs: Mapping[str, NodeCost]) -> tuple[str, ...]:
        sources = dict.fromkeys((self.rates.megahertz.provenance, self.rates.megabytes.provenance))
        for cost in costs.values():
            sources.update(dict.fromkeys(cost.cycles.provenance))
        return tuple(sources)
