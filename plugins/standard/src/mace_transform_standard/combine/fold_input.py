"""fold-input: factors, summands and the order of channels become part of the filters after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.gather import GatherAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow

READERS = ("Conv", "MatMul")
CONSTANTS = ("Mul", "Div", "Add", "Sub")
ORDERS = ("Gather",)


def fold_input(graph: Graph) -> Graph:
    """Fold constants before a Conv or MatMul into its filters: W (a * x + b) -> (W a) x + W b, by channels.

    Mul and Div scale the filters, Add and Sub change the bias, and a Gather that only reorders the channels
    (BGR to RGB) reorders them. A summand only where the Conv is not padded: zeros around x + b are not b more
    than zeros around x. A Transpose between them, as images with the channels first have, comes before all
    that is left. Rounding differs as in every reordered product.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in READERS:
        return None
    node = match.node
    # A chain of factors and summands goes one by one, nearest to the filters first.
    while next_node := _fold_one(Match(node, match.builder, match.uses)):
        node = next_node
    return (
        match.builder.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
        if node is not match.node
        else None
    )


def _fold_one(match: Match) -> Node | None:
    """The node as it reads what the op before it reads; None if it must stay."""
    # Quotients of integers are rounded, and their products wrap where those of folded constants saturate.
    if not match.builder.tensors[match.node.inputs[0]].real.dtype.is_float:
        return None
    before, filters = match.sole_producer(0, *CONSTANTS, *ORDERS, "Transpose"), match.constant(1)
    perm: tuple[int, ...] | None = None
    if before and before.op.name == "Transpose":
        perm, before = (
            before.attributes(TransposeAttributes).perm,
            Match(before, match.builder, match.uses).sole_producer(0, *CONSTANTS, *ORDERS),
        )
    if (
        before is None
        or filters is None
        or filters.ndim < 2
        or (match.node.op.name == "MatMul" and filters.ndim != 2)
    ):
        return None
    if before.op.name in ORDERS:
        return _reorder_filters(match, filters, before, perm)
    for index in (0, 1) if before.op.name in ("Mul", "Add") else (1,):
        vector = _read_channel_vector(match, before, index, perm)
        if vector is None:
            continue
        inputs = (
            _scale_filters(match, filters, vector, before)
            if before.op.name in ("Mul", "Div")
            else _shift_bias(match, filters, vector, before)
        )
        if inputs:
            x = before.inputs[1 - index]
            x = match.builder.one("Transpose", [x], TransposeAttributes(perm), like=match.node) if perm else x
            return replace(match.merge_origins(before), inputs=(x, *inputs))
    return None


def _reorder_filters(match: Match, filters: Array, before: Node, perm: tuple[int, ...] | None) -> Node | None:
    """The node with its filters in the order of channels before a Gather.

    None if that does more than to reorder all of them.
    """
    indices, data = match.builder.constant(before.inputs[1]), before.inputs[0]
    axis, channels = (
        before.attributes(GatherAttributes).axis % len(match.builder.shape(data)),
        match.shape(0)[-1],
    )
    last = perm[-1] if perm else len(match.builder.shape(data)) - 1
    # Filters of a group see only its channels; a Gather may bring others.
    grouped = match.node.op.name == "Conv" and match.node.attributes(ConvAttributes).group != 1
    # A Gather may leave channels out, as of RGBA: the filters have none for those.
    takes_all = match.builder.shape(data)[axis] == channels
    if (
        indices is None
        or axis != last
        or grouped
        or not takes_all
        or not np.array_equal(np.sort(indices), np.arange(channels))
    ):
        return None
    # Channel c of the Gather's result is channel indices[c] of its input: so c of the filters goes there.
    inverse = np.argsort(indices)
    ordered = filters[inverse] if match.node.op.name == "MatMul" else filters[..., inverse]
    name = match.builder.weight(f"{match.node.outputs[0]}.filters", np.ascontiguousarray(ordered))
    x = match.builder.one("Transpose", [data], TransposeAttributes(perm), like=match.node) if perm else data
    return replace(match.merge_origins(before), inputs=(x, name, *match.node.inputs[2:]))


def _read_channel_vector(
    match: Match, before: Node, index: int, perm: tuple[int, ...] | None
) -> Array | None:
    """A constant operand as a vector of all channels.

    None if it lies otherwise or stretches the other operand.
    """
    constant, shape = (
        match.builder.constant(before.inputs[index]),
        match.builder.shape(before.inputs[1 - index]),
    )
    # A constant that stretches the other operand makes a larger tensor than the filters would read.
    if constant is None or shape != match.builder.shape(before.outputs[0]) or len(shape) < 2:
        return None
    wide = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    moved = wide.transpose(perm) if perm else wide
    channels = match.shape(0)[-1]
    if moved.size != moved.shape[-1] or moved.size not in (1, channels):
        return None
    return np.broadcast_to(moved.reshape(-1), (channels,)).astype(np.float64)


def _spread_over_filters(match: Match, vector: Array, filters: Array) -> Array:
    """The input's channels as a vector shaped like filters: [O, 1, ..., I / group], or [K, 1] of a matrix."""
    if match.node.op.name == "MatMul":
        return vector[:, None]
    group = match.node.attributes(ConvAttributes).group
    # Every filter of a group sees the channels of that group alone.
    rows = np.repeat(vector.reshape(group, -1), filters.shape[0] // group, axis=0)
    return rows.reshape(filters.shape[0], *(1,) * (filters.ndim - 2), -1)


def _scale_filters(match: Match, filters: Array, vector: Array, before: Node) -> tuple[str, ...] | None:
    with np.errstate(divide="ignore"):
        factor = 1 / vector if before.op.name == "Div" else vector
    # A division by zero gives infinities that the products with zeros would turn to NaN.
    if not np.all(np.isfinite(factor)):
        return None
    spread = _spread_over_filters(match, factor, filters)
    scaled = narrow(filters * spread, filters.dtype)
    if scaled is None:
        return None
    return (match.builder.weight(f"{match.node.outputs[0]}.filters", scaled), *match.node.inputs[2:])


def _shift_bias(match: Match, filters: Array, vector: Array, before: Node) -> tuple[str, ...] | None:
    attrs, inputs = match.node.attrs, match.node.inputs
    # Zeros around x + b are not b more than zeros around x.
    if isinstance(attrs, ConvAttributes) and any((*attrs.pads_before, *attrs.pads_after)):
        return None
    old = match.constant(2) if len(inputs) > 2 and inputs[2] else np.zeros(())
    if old is None:
        return None
    axes = (0,) if match.node.op.name == "MatMul" else tuple(range(1, filters.ndim))
    more = (filters * _spread_over_filters(match, vector, filters)).sum(axis=axes)
    total = narrow(old + (more if before.op.name == "Add" else -more), filters.dtype)
    return (
        None if total is None else (inputs[1], match.builder.weight(f"{match.node.outputs[0]}.bias", total))
    )
