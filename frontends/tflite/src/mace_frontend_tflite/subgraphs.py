"""Translates graphs of the file operator by operator.

The IR has no calls: a graph that an operator calls is translated in place of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from mace_frontend_tflite.importer import GraphScope
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.source import Operator, Subgraph


def inline(node: TfliteNode, index: int, inputs: Sequence[str]) -> list[str]:
    """Translate another graph of the file in place of a node; return the tensors that hold its outputs."""
    graph = called_graph(node, index)
    node.refuse_unless(
        len(inputs) == len(graph.inputs), f"it calls a graph of {len(graph.inputs)} inputs with {len(inputs)}"
    )
    scope = GraphScope(dict(zip(graph.inputs, inputs, strict=True)), graph=graph)
    perform(node, scope, graph.operators)
    return [node.importer.tensor(scope, i) for i in graph.outputs]


def called_graph(node: TfliteNode, index: int) -> Subgraph:
    """Return the graph that a node calls; RefusedError if the file does not hold it."""
    graphs = node.importer.source.subgraphs
    node.refuse_unless(0 < index < len(graphs), f"it calls graph {index}, which the file does not hold")
    return graphs[index]


def perform(node: TfliteNode, scope: GraphScope, operators: Sequence[Operator]) -> None:
    """Translate operators of a graph that a node calls; SkippedError if any of them fails."""
    with node.importer.enter_subgraph():
        for operator in operators:
            translate_operator(TfliteNode(operator, scope, node.importer))


def translate_operator(node: TfliteNode) -> None:
    """Translate one operator. A tensor at which the graph is cut keeps the value that it has."""
    outputs = node.operator.outputs
    values: dict[int, str | None] = dict.fromkeys(outputs)
    values.update(zip(outputs, node.importer.translate(node) or (), strict=False))
    for index, value in values.items():
        node.scope.values.setdefault(index, value)
