"""Judges a node as the operator of a TensorFlow Lite file that it becomes."""

from __future__ import annotations

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_ethosu.judge import load_rules
from mace_target_ethosu.operators import read_operators
from mace_tflite_writer import refuses, write_tflite


def judge_node(node: Node, graph: Graph, generation: str) -> Refusal | None:
    """Return why a generation of the NPU does not compute a node; None if it does."""
    if refusal := refuses(node, graph):
        return refusal
    rules = load_rules(generation)
    judged = (rules.judge(operator) for operator in read_operators(write_tflite(isolate(node, graph))))
    return next(filter(None, judged), None)


def isolate(node: Node, graph: Graph) -> Graph:
    """Return a graph of one node alone, with the constants that it reads."""
    names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name)
    return Graph(
        name=graph.name,
        nodes=(node,),
        tensors={name: graph.tensors[name] for name in names},
        weights={name: graph.weights[name] for name in names if name in graph.weights},
        inputs=tuple(dict.fromkeys(name for name in node.inputs if name and name not in graph.weights)),
        outputs=tuple(node.outputs),
    )
