"""The rewrites that keep what a graph computes, until the format states what it can."""

from __future__ import annotations

from collections.abc import Callable

from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_tflite_writer.rewrites.channels import silence_channels
from mace_tflite_writer.rewrites.clamps import clips_as_limits, separate_clamps
from mace_tflite_writer.rewrites.convolutions import blocks_as_convolutions
from mace_tflite_writer.rewrites.functions import functions_by_steps, softmax_along_last
from mace_tflite_writer.rewrites.norms import norms_by_steps
from mace_tflite_writer.rewrites.signedness import (
    WEIGHTED,
    activations_to_int8,
    products_in_int8,
    products_in_int16,
)
from mace_tflite_writer.rewrites.splits import split_groups
from mace_tflite_writer.rewrites.storages import requantize_inputs
from mace_tflite_writer.rewrites.windows import rows_as_images, separate_crops, separate_pads
from mace_tflite_writer.writer import refuses

STEPS: tuple[Callable[[Graph], Graph], ...] = (
    products_in_int8,
    products_in_int16,
    # Images before other windows: the rewrites behind it are for windows over two axes.
    rows_as_images,
    # What all groups have alike is rewritten once, before they are split.
    separate_crops,
    # Norms of windows become pools, whose padding is then separated.
    norms_by_steps,
    separate_pads,
    blocks_as_convolutions,
    # Functions may add clamps.
    functions_by_steps,
    separate_clamps,
    clips_as_limits,
    split_groups,
    silence_channels,
    softmax_along_last,
    # Last, because operands that the others add have the storage that they must have.
    requantize_inputs,
)
"""The rewrites that `legalize` makes, in order; all exact but for the rounding of floats."""


def legalize(graph: Graph) -> Graph:
    """Rewrite what the format has no operator for; what it states stays as it is.

    The results are the same integers, and the same floats but for the rounding of `functions_by_steps`.
    Activations of uint8 beside int8 weights become int8 in the whole graph, or else around each such product.
    """
    if _mixes_signs(graph):
        graph = _change_signs(graph)
    for step in STEPS:
        graph = step(graph)
    return graph


def _change_signs(graph: Graph) -> Graph:
    """Return the graph with int8 activations, unless the format then refuses what it states now.

    A few operators, such as DIV, have kernels for uint8 alone.
    """
    signed = activations_to_int8(graph)
    before = {node.name: node for node in graph.nodes}
    for node in signed.nodes:
        known = before.get(node.name)
        if known and refuses(node, signed) and refuses(known, graph) is None:
            return graph
    return signed


def _mixes_signs(graph: Graph) -> bool:
    """Tell whether a product has uint8 activations and int8 weights, which no operator of the format has."""
    for node in graph.nodes:
        types = [t.dtype.value for t in graph.inputs_of(node)[:2] if t is not None and t.quant]
        if node.op.name in WEIGHTED and types == ["u8", "i8"]:
            return True
    return False


def refuses_after_rewrites(node: Node, graph: Graph) -> Refusal | None:
    """Return None where `legalize` makes of the node what the format states; otherwise the first reason left.

    The time grows with the node's own weights alone.
    """
    if refuses(node, graph) is None:
        return None
    rewritten = legalize(isolate(node, graph))
    for part in rewritten.nodes:
        if refusal := refuses(part, rewritten):
            return refusal
    return None


def isolate(node: Node, graph: Graph) -> Graph:
    """Return a node as a graph of its own, with the constants that it reads."""
    names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name)
    weights = {name: graph.weights[name] for name in names if name in graph.weights}
    inputs = tuple(dict.fromkeys(name for name in node.inputs if name and name not in weights))
    tensors = {name: graph.tensors[name] for name in names}
    return Graph(graph.name, (node,), tensors, weights, inputs, tuple(node.outputs))
