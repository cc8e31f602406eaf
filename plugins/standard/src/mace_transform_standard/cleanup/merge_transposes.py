"""merge-transposes: two Transposes with a Reshape between them are one where axes stay together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from mace_core.ir import Graph, Node
from mace_core.ops.op import Perm
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.layout.axis_groups import axis_groups


def merge_transposes(graph: Graph) -> Graph:
    """Merge Transpose(Reshape(Transpose(x, p)), q) -> Reshape(Transpose(x, r)).

    Where the Reshape splits, merges, adds or drops axes that q keeps together, so that q can be done before
    it. Exact: elements only move.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node, builder = match.node, match.builder
    reshape = match.sole_producer(0, "Reshape") if node.op.name == "Transpose" else None
    first = builder.producer(reshape.inputs[0]) if reshape else None
    if (
        reshape is None
        or first is None
        or first.op.name != "Transpose"
        or not match.is_read_once(reshape.inputs[0])
        or match.is_rounded(reshape.inputs[0])
    ):
        return None
    permutation = _lift_permutation(match, _permutation_of(node), reshape)
    if permutation is None:
        return None
    # One Transpose where there were two: the axes before the first, in the order behind the second.
    before = _permutation_of(first)
    transposed = builder.one(
        "Transpose",
        first.inputs,
        TransposeAttributes(tuple(before[p] for p in permutation)),
        outputs=[builder.fresh(node.outputs[0])],
        like=node,
    )
    shape = builder.shape(reshape.outputs[0])
    attrs = ReshapeAttributes(tuple(shape[p] for p in _permutation_of(node)))
    return match.emit("Reshape", [transposed], attrs)


def _lift_permutation(match: Match, perm: Perm, reshape: Node) -> Perm | None:
    """The permutation of the axes before a Reshape that does what one behind it does.

    None if it tears apart what was one axis.
    """
    groups = axis_groups(match.builder.shape(reshape.inputs[0]), match.builder.shape(reshape.outputs[0]))
    if groups is None:
        return None
    places = [[perm.index(axis) for axis in after] for _, after in groups]
    # The axes that one axis was split into must stay neighbors in their order, or it cannot move as one.
    if any(p != list(range(p[0], p[0] + len(p))) for p in places if p):
        return None
    order = sorted(range(len(groups)), key=lambda i: places[i][0] if places[i] else -1)
    return tuple(chain.from_iterable(groups[i][0] for i in order))


def _permutation_of(node: Node) -> Perm:
    return node.attributes(TransposeAttributes).perm
