"""layout: sink every Transpose towards the outputs until it meets its inverse.

A frontend of a framework with channels first writes each spatial op between two Transposes. An op with a
`move` rule computes the same on operands whose axes are in another order, so Transposes that feed it can come
after it instead; where two meet they merge, and most vanish. Ops without a rule (Reshape, Gather ...) keep
the order of their framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from mace_core.ir import Graph, Node
from mace_core.ops.op import Perm
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.shapes import keep
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.layout.axis_groups import axis_groups

FIRST = frozenset((0, rank - 1, *range(1, rank - 1)) for rank in (3, 4, 5))
"""Permutations from channels last to channels first."""


def layout(graph: Graph) -> Graph:
    """Move Transposes behind the ops that allow it, merge those that meet, drop those that cancel.

    f(Transpose(x, p)) -> Transpose(f'(x), p), where f' is f with its axes renamed (`Op.move`). Exact: each
    element is computed from the same operands, but for sums over several axes, whose order changes.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name in ("Transpose", "Reshape"):
        storage = match.builder.tensors[match.node.inputs[0]].storage
        if storage != match.builder.storages.get(match.node.outputs[0], storage):
            return None  # it rounds as well
        return _merge_transposes(match) if match.node.op.name == "Transpose" else _sink_reshape(match)
    return _sink(match) if match.node.op.move else None


def _merge_transposes(match: Match) -> Sequence[str] | None:
    before = _find_transpose(match, match.node.inputs[0])
    perm = _permutation_of(match.node)
    source = match.node.inputs[0]
    if before:
        perm, source = tuple(_permutation_of(before)[p] for p in perm), before.inputs[0]
    if perm == tuple(range(len(perm))):
        return [source]
    return match.emit("Transpose", [source], TransposeAttributes(perm)) if before else None


def _sink(match: Match) -> Sequence[str] | None:
    node = match.node
    assert node.op.move is not None
    perm = _find_common_permutation(match)
    if perm is None:
        return None
    moved = node.op.move(node.attrs, perm)
    if moved is None:
        return None
    attrs, after = moved
    storages = [match.builder.storages.get(output) for output in node.outputs]
    if any(storage and storage.has_axis for storage in storages):
        return None  # the scales would have to follow their axis
    inputs = [_strip_transpose(match, name, perm) for name in node.inputs]
    # The result keeps its storage: a moved op rounds as the op did.
    pairs = zip(node.outputs, storages, strict=True)
    names = [match.builder.reserve_output(f"{output}.moved", storage) for output, storage in pairs]
    results = match.builder.add(node.op, inputs, attrs, outputs=names, like=node)
    if after == tuple(range(len(after))):
        return results
    return [
        match.builder.one("Transpose", [result], TransposeAttributes(after), outputs=[public], like=node)
        for result, public in zip(results, node.outputs, strict=True)
    ]


def _find_common_permutation(match: Match) -> Perm | None:
    """The permutation that every operand which is computed went through.

    None if they differ or the op cannot take it.
    """
    node = match.node
    # `move` speaks of the first operand; indices or filters have axes of their own.
    if len(node.inputs) > 1 and node.op.move is not keep and not node.op.inputs[-1].endswith("*"):
        return None  # operands of other roles than the first, such as indices
    rank = max(len(match.builder.shape(i)) for i in node.inputs)
    perms = set()
    for name in node.inputs:
        before = _find_transpose(match, name)
        if before and len(match.builder.shape(name)) == rank:
            perms.add(_permutation_of(before))
        # Constants are transposed when they are folded, and one element lies the same in every order.
        elif name not in match.builder.weights and match.builder.tensors[name].elements != 1:
            return None
    return perms.pop() if len(perms) == 1 else None


def _strip_transpose(match: Match, name: str, perm: Perm) -> str:
    """An operand in the order of axes before the permutation."""
    before = _find_transpose(match, name)
    if before and len(match.builder.shape(name)) == len(perm):
        return before.inputs[0]
    shape = match.builder.shape(name)
    if shape == ():
        return name
    # Broadcasting aligns last axes; after the permutation those are others, so absent ones become 1
    # first.
    wide = match.builder.one("Reshape", [name], ReshapeAttributes((1,) * (len(perm) - len(shape)) + shape))
    if name not in match.builder.weights:  # a single element
        return wide
    back = tuple(sorted(range(len(perm)), key=perm.__getitem__))
    return match.builder.one("Transpose", [wide], TransposeAttributes(back))


def _sink_reshape(match: Match) -> Sequence[str] | None:
    """Through a Reshape that splits, drops and adds axes, and one that merges some that stay neighbors."""
    node = match.node
    before = _find_transpose(match, node.inputs[0])
    shape = node.attributes(ReshapeAttributes).shape
    groups = axis_groups(match.shape(0), shape) if before else None
    if before is None or groups is None:
        return None
    perm = _permutation_of(before)
    # In the order in which the axes lay before the Transpose, so that the Reshape comes first and moves
    # nothing.
    groups.sort(key=lambda group: min((perm[a] for a in group[0]), default=-1))
    first = tuple(perm[axis] for axis in chain.from_iterable(before_axes for before_axes, _ in groups))
    order = list(chain.from_iterable(after_axes for _, after_axes in groups))
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    inside = first != tuple(range(len(first)))
    if inside and back not in FIRST:  # two Transposes for one, unless the second soon meets another
        return None
    source = (
        match.builder.one("Transpose", before.inputs, TransposeAttributes(first), like=node)
        if inside
        else before.inputs[0]
    )
    flat = match.builder.one("Reshape", [source], {"shape": [shape[place] for place in order]}, like=node)
    return (
        match.emit("Transpose", [flat], TransposeAttributes(back))
        if back != tuple(range(len(back)))
        else [flat]
    )


def _find_transpose(match: Match, name: str) -> Node | None:
    """The Transpose that makes a tensor, if it does no more: one to another storage rounds."""
    node = match.builder.producer(name) if name else None
    if node is None or node.op.name != "Transpose":
        return None
    return (
        node if match.builder.tensors[node.inputs[0]].storage == match.builder.tensors[name].storage else None
    )


def _permutation_of(node: Node) -> Perm:
    return node.attributes(TransposeAttributes).perm
