"""sink-reshapes: bias and activation meet the convolution or product that a Reshape keeps from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Graph, Node, Shape
from mace_core.rewrite import Match, rewrite

FILTERED = ("Conv", "ConvTranspose", "MatMul")
"""Ops that take in what follows them."""

SUNK = ("Add", "Sub", "Mul", "Div", "Relu", "Clip")


def sink_reshapes(graph: Graph) -> Graph:
    """Compute before a Reshape what the Conv or MatMul before it takes in.

    Limits, and constants along the channels. So are sequences convolved as images of one row, and
    matrices multiplied as lists of all their rows, in frameworks that can only do the latter.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in SUNK:
        return None
    for at in range(len(match.node.inputs)):
        reshape = match.sole_producer(at, "Reshape")
        inputs = _inputs(match, at, reshape) if reshape and _from_filters(match, reshape.inputs[0]) else None
        if inputs:
            stored = match.new.stored(
                f"{match.node.outputs[0]}.before", match.new.storages.get(match.node.outputs[0])
            )
            made = match.new.add(match.node.op, inputs, match.node.attrs, outputs=[stored], like=match.node)
            return match.emit("Reshape", made, {"shape": match.shape(at)})
    return None


def _inputs(match: Match, at: int, reshape: Node) -> list[str] | None:
    """What the node reads before the Reshape; None if its constant would lie along other elements there."""
    source = reshape.inputs[0]
    if len(match.node.inputs) == 1:
        return [source]
    constant = match.constant(1 - at)
    if constant is None or not _along_channels(constant.shape, match.shape(at), match.new.shape(source)):
        return None
    flat = constant.reshape(-1) if constant.size > 1 else constant.reshape(())
    other = match.new.weight(f"{match.node.outputs[0]}.flat", flat)
    return [source, other] if at == 0 else [other, source]


def _along_channels(constant: Shape, now: Shape, before: Shape) -> bool:
    """Whether a constant is one number, or one for each channel, that is the last axis before and after."""
    elements = int(np.prod(constant))
    if np.broadcast_shapes(constant, now) != now or not before:
        return False
    return elements == 1 or elements == constant[-1] == now[-1] == before[-1]


def _from_filters(match: Match, tensor: str) -> bool:
    """Whether a tensor comes from a Conv or MatMul through what has been sunk.

    Only this Reshape may read it.
    """
    node = match.new.producer(tensor)
    if node is None or match.uses.get(tensor, 1) != 1 or len(node.outputs) != 1:
        return False
    if node.op.name in FILTERED:
        return True
    computed = [i for i in node.inputs if i not in match.new.weights]
    return node.op.name in SUNK and len(computed) == 1 and _from_filters(match, computed[0])
