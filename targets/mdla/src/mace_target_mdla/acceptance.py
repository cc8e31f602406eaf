"""Decides whether the target takes a node: as it is, or as what rewrites make of it."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_mdla.judge import Judgment, judge
from mace_target_mdla.legalize import legalize_for, refuse_conversion
from mace_target_mdla.network import refuse_encoding
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import read_table
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites import WeightLoss
from mace_tflite_writer.rewrites.legal import isolate


@dataclass(frozen=True)
class Acceptance:
    """What the target answers about a node.

    refusal: None if it takes the node.  judgment: of the node as it is.
    steps: judgments of the nodes that it is rewritten as; () for a node that stays as it is.
    losses: what the rewriting changes of its weights.  rule: what a refusal that no published rule makes is
    called.
    """

    refusal: Refusal | None
    judgment: Judgment
    steps: tuple[Judgment, ...] = ()
    losses: tuple[WeightLoss, ...] = ()
    rule: str = "tflite"


def examine(node: Node, graph: Graph, options: MdlaOptions) -> Acceptance:
    """Return whether rules, file format and adapter allow a node, if need be after rewrites.

    The rewrites are exact but for those whose loss the options allow. The time grows with the node's own
    weights alone.
    """
    judgment, refusal = _examine_as_is(node, graph, options)
    # Asked for even where the rules take the node: options that demand uint8 must not silently compile int8.
    conversion = refuse_conversion(node, graph, options)
    if conversion is not None:
        return Acceptance(conversion, judgment, rule="weights-per-channel")
    # With these options the build rewrites even what is legal as it stands, so its steps are judged.
    changes_integers = options.stores_uint8 or options.weights_per_tensor
    if refusal is None and not changes_integers:
        return Acceptance(None, judgment)
    # The node by itself: the whole graph for each of its nodes would take time with the square of its size.
    rewritten, losses = legalize_for(isolate(node, graph), options)
    if rewritten.nodes == (node,):
        return Acceptance(refusal, judgment)
    steps = []
    for step in rewritten.nodes:
        step_judgment, step_refusal = _examine_as_is(step, rewritten, options)
        if step_refusal is not None:
            # What is wrong with the node itself is of more use than what is wrong with a part of it.
            return Acceptance(judgment.refusal(options) or step_refusal, judgment)
        steps.append(step_judgment)
    return Acceptance(None, judgment, tuple(steps), losses)


def _examine_as_is(node: Node, graph: Graph, options: MdlaOptions) -> tuple[Judgment, Refusal | None]:
    """Return the judgment of a node, and why it cannot go to the device as it is; None if it can."""
    judgment = judge(node, graph, read_table(options.generation))
    refusal = judgment.refusal(options) or refuses(node, graph)
    # A compiler that the options name reads the file itself, or the build ends. With `auto` nobody knows yet
    # who compiles, so that the adapter, which has fewer operators than the file, must be able to.
    if refusal is None and not options.is_compiled_before:
        refusal = refuse_encoding(node, graph, unsigned=options.stores_uint8)
    return judgment, refusal
