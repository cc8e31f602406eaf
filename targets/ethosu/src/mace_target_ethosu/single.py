"""Judges a node as the operators of a TensorFlow Lite file that it becomes."""

from __future__ import annotations

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_ethosu.judge import load_rules
from mace_target_ethosu.legalize import legalize_region
from mace_target_ethosu.operators import read_operators
from mace_tflite_writer import write_tflite
from mace_tflite_writer.rewrites import refuses_after_rewrites
from mace_tflite_writer.rewrites.legal import isolate


def judge_node(node: Node, graph: Graph, generation: str) -> Refusal | None:
    """Return why a generation of the NPU does not compute a node; None if it does."""
    if refusal := refuses_after_rewrites(node, graph):
        return refusal
    rules = load_rules(generation)
    # With the generation's own rewrites, so that the rules judge what Vela would read.
    operators = read_operators(write_tflite(legalize_region(isolate(node, graph), generation)))
    judged = (rules.judge(operator) for operator in operators)
    return next(filter(None, judged), None)
