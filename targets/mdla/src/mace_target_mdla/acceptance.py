"""Decides whether the target takes a node: as it is, or as what rewrites make of it."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_mdla.judge import Judgment, judge
from mace_target_mdla.legalize import legalize_for
from mace_target_mdla.network import refuse_encoding
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import read_table
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites.legal import isolate


@dataclass(frozen=True)
class Acceptance:
    """What the target answers about a node.

    refusal: None if it takes the node.  judgment: of the node as it is.
    steps: judgments of the nodes that it is rewritten as; () for a node that stays as it is.
    """

    refusal: Refusal | None
    judgment: Judgment
    steps: tuple[Judgment, ...] = ()


def examine(node: Node, graph: Graph, options: MdlaOptions) -> Acceptance:
    """Return whether rules, file format and adapter allow a node, if need be after exact rewrites.

    The time grows with the node's own weights alone.
    """
    judgment, refusal = _examine_as_is(node, graph, options)
    if refusal is None:
        return Acceptance(None, judgment)
    rewritten = legalize_for(isolate(node, graph), options)
    if rewritten.nodes == (node,):
        return Acceptance(refusal, judgment)
    steps = []
    for step in rewritten.nodes:
        step_judgment, step_refusal = _examine_as_is(step, rewritten, options)
        if step_refusal is not None:
            # What is wrong with the node itself is of more use than what is wrong with a part of it.
            return Acceptance(judgment.refusal(options) or step_refusal, judgment)
        steps.append(step_judgment)
    return Acceptance(None, judgment, tuple(steps))


def _examine_as_is(node: Node, graph: Graph, options: MdlaOptions) -> tuple[Judgment, Refusal | None]:
    """Return the judgment of a node, and why it cannot go to the device as it is; None if it can."""
    judgment = judge(node, graph, read_table(options.generation))
    refusal = judgment.refusal(options) or refuses(node, graph) or refuse_encoding(node, graph)
    return judgment, refusal
