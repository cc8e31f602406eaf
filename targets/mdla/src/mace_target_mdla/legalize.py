"""Rewrites graphs so that the file format states them and the chip has their operators."""

from __future__ import annotations

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_mdla.operation import CLAMPS, DIRECT
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import Verdict, read_table
from mace_tflite_writer.rewrites import (
    WeightLoss,
    activations_to_uint8,
    blocks_as_convolutions,
    clips_as_limits,
    functions_by_steps,
    legalize,
    means_as_convolutions,
    norms_by_steps,
    products_of_rows,
    splits_as_slices,
    weights_per_tensor,
)
from mace_tflite_writer.rewrites.per_tensor import has_weights_of_scales

ABSENT_IN_ADAPTER = ("ELU", "GELU", "RELU_0_TO_1", "SPLIT_V")
"""Operators that the Neuron adapter has no code for, and the steps that replace them."""


def legalize_for(graph: Graph, options: MdlaOptions) -> tuple[Graph, tuple[WeightLoss, ...]]:
    """Return a graph that computes the same by operators that the chip is known to have, where there are any.

    Stored integers stay the same; functions of floats that become several steps round at each of them. Only
    `weights_per_tensor` of the options changes numbers: returns what the weights of each node lose by it.
    """
    losses: tuple[WeightLoss, ...] = ()
    # Before the signs change: weights with scales along an axis would stay int8, those with one scale follow.
    if options.weights_per_tensor:
        graph, losses = weights_per_tensor(graph)
    if options.stores_uint8:
        graph = activations_to_uint8(graph)
    # Steps first: they may add clamps and constants that only the format's rewrites make legal. Norms before
    # functions: they add roots, which not every generation has.
    graph = functions_by_steps(norms_by_steps(graph), absent_ops(options))
    graph = clips_as_limits(graph, absent_clamps(options))
    if _is_refused("SPLIT_V", options):
        graph = splits_as_slices(graph)
    # One asks for both: they are software on MDLA 1.5 and hardware from 2.0 on (guide 272 to 284).
    if _is_refused("SPACE_TO_DEPTH", options):
        graph = blocks_as_convolutions(graph, every=True)
    # The adapter's FULLY_CONNECTED gives two axes, and its MEAN keeps the scale; what replaces them becomes
    # legal with all the rest.
    return legalize(means_as_convolutions(products_of_rows(graph))), losses


def refuse_conversion(node: Node, graph: Graph, options: MdlaOptions) -> Refusal | None:
    """Tell why the integers of a node cannot be stored as the options ask; None where they can."""
    if not options.stores_uint8 or options.weights_per_tensor or not has_weights_of_scales(node, graph):
        return None
    if not options.is_compiled_before:
        # The file has int8, and the adapter receives uint8 beside these weights: see UnsignedModel.
        return None
    weights = node.inputs[1]
    return Refusal(
        "quantization",
        f"{weights} has a scale for each channel, which a file for a compiler does not have beside uint8",
        "state `weights: per-tensor` to quantize them again, with a loss that `mace lint` then shows; "
        "or leave `int8: to-uint8` or the compiler out",
    )


def absent_ops(options: MdlaOptions) -> tuple[str, ...]:
    """Return the ops whose operator the target refuses on the chip of the options, or the adapter lacks."""
    return tuple(op for op, operator in DIRECT.items() if _is_refused(operator, options))


def absent_clamps(options: MdlaOptions) -> tuple[tuple[float, float], ...]:
    """Return the limits of clamps whose operator the target refuses, or the adapter lacks."""
    return tuple(bounds for bounds, operator in CLAMPS.items() if _is_refused(operator, options))


def _is_refused(operator: str, options: MdlaOptions) -> bool:
    # A compiler that the options name reads the file, and the file format has these operators.
    if operator in ABSENT_IN_ADAPTER and not options.is_compiled_before:
        return True
    table = read_table(options.generation)
    verdict = table.operators.get(operator, table.unlisted).verdict
    is_accepted = {
        Verdict.HARDWARE: True,
        Verdict.SOFTWARE: options.accepts_software,
        Verdict.UNKNOWN: options.accepts_unknown,
        Verdict.UNSUPPORTED: False,
    }
    return not is_accepted[verdict]
