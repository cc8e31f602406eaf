"""The rewrites of a quantised graph, in order, until only ops of the hardware are left."""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Graph
from mace_core.rewrite import Match, rewrite
from mace_target_max78000.automatic.forming import convolutions, doubling, rules
from mace_target_max78000.automatic.forming.convolutions import (
    Job,
    axes_of,
    lengths,
    spread,
    subsampled_alike,
)
from mace_target_max78000.automatic.forming.crops import crops, sunk
from mace_target_max78000.automatic.forming.ends import Fold, folded_graph
from mace_target_max78000.automatic.forming.lines import line
from mace_target_max78000.automatic.forming.refusal import Faults
from mace_target_max78000.automatic.forming.windows import folded
from mace_target_max78000.device import Device

EXACT = (
    rules.chosen,
    rules.capped,
    rules.mean,
    rules.pointwise,
    rules.matrix,
    doubling.resized,
    doubling.transposed,
)


def gathered(graph: Graph) -> Graph:
    """The graph with bias, limits and rounding in the layers that they end, where real numbers lie between."""
    for rule in (rules.biased, rules.limited, rules.stored):
        graph = rewrite(graph, rule)
    return graph


def lowered(graph: Graph, device: Device, faults: Faults) -> tuple[Graph, Fold | None]:
    """The graph with ops of the hardware only; what it cannot do is noted and left.

    Returned with how the application folds the input, if that is needed.
    """
    graph = gathered(graph)
    graph = rewrite(graph, faults.noting(rules.split(rules.operands_of_input(graph))))
    for rule in EXACT:
        graph = rewrite(graph, faults.noting(rule))
    graph = rewrite(graph, faults.noting(rules.pool(device.pipelined)))
    graph = rewrite(graph, faults.noting(rules.padded))
    graph, fold = with_folded_input(graph, device)
    graph = rewrite(graph, faults.noting(convolutions.rule(device)))
    graph = rewrite(graph, faults.noting(convolutions.rule(device)))  # grouped ones have become dense
    if device.pipelined:
        graph = rewrite(graph, faults.noting(line))
    graph = rewrite(graph, faults.noting(sunk))
    return rewrite(graph, faults.noting(crops)), fold


def with_folded_input(graph: Graph, device: Device) -> tuple[Graph, Fold | None]:
    """The graph with the input folded by the application where its first convolution could not be computed in one layer."""
    readers = [n for n in graph.nodes if graph.inputs[0] in n.inputs]
    if len(readers) != 1 or graph.inputs[0] in graph.outputs or readers[0].op.name != "Conv":
        return graph, None
    node, x = readers[0], graph.tensors[graph.inputs[0]].shape
    w = graph.weights[node.inputs[1]]
    axes = axes_of(node, x[1:-1], w.shape[1:-1], graph.tensors[node.outputs[0]].shape[1:-1])
    alike = subsampled_alike(axes)
    job = Job(Match(node, Builder(graph.name), {}), alike, w, device) if alike else None
    if (job and (job.is_native or job.fits)) or int(str(node.attrs["group"])) > 1:
        return graph, None
    plan = folded(axes, lengths(len(x))[-1])
    if int(np.prod([len(f.moves) for f in plan])) * x[-1] > device.channels:
        return graph, None
    filters = spread(w, [f.places for f in plan], plan[0].length, [len(f.moves) for f in plan])
    return folded_graph(graph, node, plan, filters)
