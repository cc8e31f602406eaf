"""merge-axes: what moves or cuts more than four axes between two Reshapes does so with fewer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from mace_core.attributes import Attributes
from mace_core.ir import Graph, Node, Shape
from mace_core.ops.op import Perm
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite

MAX_AXES = 4
"""Nodes with more axes change: few accelerators have more, and none of these ops gains by one."""
Groups = list[list[int]]
"""The axes of a tensor, in order; those of one group are merged."""


def merge_axes(graph: Graph) -> Graph:
    """Merge axes in Reshape(Transpose(Reshape(x))) and Reshape(Slice(Reshape(x))) of more than four axes.

    A Transpose keeps neighbors together, and a Slice takes some axes whole: such axes are one with the
    product of their lengths, and an axis of length 1 joins any other. A shuffle of channels in five axes is
    one in three. Exact: elements only move.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    builder = match.builder
    mover = match.sole_producer(0, "Transpose", "Slice") if match.node.op.name == "Reshape" else None
    if mover is None:
        return None
    # Others may read the first Reshape, such as the other parts that are cut from it: it costs nothing.
    first = builder.producer(mover.inputs[0])
    shape = builder.shape(mover.inputs[0])
    if (
        first is None
        or first.op.name != "Reshape"
        or match.is_rounded(mover.inputs[0])
        or len(shape) <= MAX_AXES
        or 0 in shape
    ):
        return None
    # Scales along an axis would have to follow it.
    quant = builder.tensors[mover.inputs[0]].quant
    if quant is not None and quant.axis is not None:
        return None
    merged, attributes = _merge_mover(mover, shape)
    if len(merged) == len(shape):
        return None
    name = match.node.outputs[0]
    narrow = builder.one(
        "Reshape", first.inputs, ReshapeAttributes(merged), outputs=[builder.fresh(name)], like=mover
    )
    moved = builder.one(mover.op, [narrow], attributes, outputs=[builder.fresh(name)], like=mover)
    return match.emit("Reshape", [moved], match.node.attrs)


def _merge_mover(mover: Node, shape: Shape) -> tuple[Shape, Attributes]:
    """Return the merged shape of what a Transpose or Slice reads, and what it does with it."""
    if mover.op.name == "Transpose":
        perm = mover.attributes(TransposeAttributes).perm
        groups = _group_neighbors(perm, shape)
        # A group keeps its place among the others: that of its first axis.
        order = sorted(range(len(groups)), key=lambda group: perm.index(groups[group][0]))
        return _lengths(groups, shape), TransposeAttributes(tuple(order))
    attributes = mover.attributes(SliceAttributes)
    return _merge_slice(attributes, shape)


def _group_neighbors(perm: Perm, shape: Shape) -> Groups:
    """Group the axes longer than 1 that stay beside each other in their order."""
    longer = [axis for axis in perm if shape[axis] != 1]
    after = dict(pairwise(longer))
    groups: Groups = []
    for axis in (axis for axis, length in enumerate(shape) if length != 1):
        if groups and after.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups or [[0]]


def _merge_slice(attributes: SliceAttributes, shape: Shape) -> tuple[Shape, SliceAttributes]:
    """Merge axes that are taken whole, and the first of them with an axis that is cut in front of them.

    Elements a to b of an axis, each with all n elements behind it, are elements a n to b n of both together.
    """
    bounds = list(zip(attributes.starts, attributes.sizes, attributes.steps, strict=True))
    is_whole = [bound == (0, length, 1) for bound, length in zip(bounds, shape, strict=True)]
    groups: Groups = []
    for axis, length in enumerate(shape):
        if length == 1 and is_whole[axis]:
            continue
        # Only neighbors of step 1 are one range; of two axes that are both cut, none is.
        joins = bool(groups) and is_whole[axis] and bounds[groups[-1][0]][2] == 1
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    groups = groups or [[0]]
    inner = [prod(shape[axis] for axis in group[1:]) for group in groups]
    starts = tuple(bounds[group[0]][0] * size for group, size in zip(groups, inner, strict=True))
    sizes = tuple(bounds[group[0]][1] * size for group, size in zip(groups, inner, strict=True))
    steps = tuple(bounds[group[0]][2] for group in groups)
    return _lengths(groups, shape), SliceAttributes(starts, sizes, steps)


def _lengths(groups: Groups, shape: Shape) -> Shape:
    return tuple(prod(shape[axis] for axis in group) for group in groups)
