"""sink-reshapes: bias and activation meet the convolution or product that a Reshape keeps from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Graph, Node, Shape
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.rewrite import Match, rewrite

FILTERED = ("Conv", "ConvTranspose", "MatMul")
"""Ops that take in what follows them."""

SUNK = ("Add", "Sub", "Mul", "Div", "Relu", "Clip")


def sink_reshapes(graph: Graph) -> Graph:
    """Compute before a Reshape what the Conv or MatMul before it can take in.

    f(Reshape(Wx)) -> Reshape(f(Wx)).

    f is a limit, or Add, Sub, Mul, Div by a number or by constants along the channels. Frameworks convolve
    sequences as images of one row and multiply matrices as lists of rows, and put such Reshapes between.
    Exact: each element is computed from the same operands.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    storage = match.builder.storages.get(match.node.outputs[0])
    # Scales along an axis have none to lie along before the Reshape.
    if match.node.op.name not in SUNK or (storage and storage.has_axis):
        return None
    for index in range(len(match.node.inputs)):
        reshape = match.sole_producer(index, "Reshape")
        inputs = (
            _inputs_before(match, index, reshape)
            if reshape and _comes_from_filters(match, reshape.inputs[0])
            else None
        )
        if inputs:
            name = match.builder.reserve_output(f"{match.node.outputs[0]}.before", storage)
            outputs = match.builder.add(
                match.node.op, inputs, match.node.attrs, outputs=[name], like=match.node
            )
            return match.emit("Reshape", outputs, ReshapeAttributes(match.shape(index)))
    return None


def _inputs_before(match: Match, index: int, reshape: Node) -> list[str] | None:
    """What the node reads before the Reshape; None if its constant would lie along other elements there."""
    source = reshape.inputs[0]
    if len(match.node.inputs) == 1:
        return [source]
    constant = match.constant(1 - index)
    if constant is None or not _lies_along_channels(
        constant.shape, match.shape(index), match.builder.shape(source)
    ):
        return None
    # One dimension: leading axes of 1 may not fit the rank before the Reshape.
    other = match.builder.weight(f"{match.node.outputs[0]}.flat", constant.reshape(-1))
    return [source, other] if index == 0 else [other, source]


def _lies_along_channels(constant: Shape, shape: Shape, before: Shape) -> bool:
    """Whether a constant is one number, or one for each channel, that is the last axis before and after."""
    elements = int(np.prod(constant))
    if np.broadcast_shapes(constant, shape) != shape or not before:
        return False
    return elements == 1 or elements == constant[-1] == shape[-1] == before[-1]


def _comes_from_filters(match: Match, tensor: str) -> bool:
    """Whether a tensor comes from a Conv or MatMul through what has been sunk.

    Only this Reshape may read it.
    """
    node = match.builder.producer(tensor)
    # Read by others, the tensor must be computed as it is, and nothing is saved.
    if node is None or not match.is_read_once(tensor) or len(node.outputs) != 1:
        return False
    if node.op.name in FILTERED:
        return True
    computed = [i for i in node.inputs if i not in match.builder.weights]
    return node.op.name in SUNK and len(computed) == 1 and _comes_from_filters(match, computed[0])
