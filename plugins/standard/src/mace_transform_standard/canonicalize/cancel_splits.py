"""cancel-splits: what is split and joined again, or joined and split again, need not move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from mace_core.ir import Graph, Node
from mace_core.ops.shapes import AxisAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.rewrite import Match, rewrite


def cancel_splits(graph: Graph) -> Graph:
    """Cancel Split with Concat: Concat(Split(x)) -> x, and Split(Concat(a, b, c)) -> a, Concat(b, c).

    Both along one axis. A Concat must read all pieces in their order; a piece of a Split must begin and end
    where parts do. Exact: elements only move, and a change of storage, which would round, stops it.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Concat":
        return _cancel_concat(match)
    return _cancel_split(match) if match.node.op.name == "Split" else None


def _cancel_concat(match: Match) -> Sequence[str] | None:
    split = match.builder.producer(match.node.inputs[0])
    if (
        split is None
        or split.op.name != "Split"
        or split.outputs != match.node.inputs
        or not _has_same_axis(match, split)
    ):
        return None
    storage = match.builder.tensors[split.inputs[0]].storage
    same = storage == match.builder.storages.get(match.node.outputs[0])
    # A piece in another storage is rounded, and so would be the Concat's result.
    if not same or any(match.builder.tensors[part].storage != storage for part in split.outputs):
        return None
    return split.inputs


def _cancel_split(match: Match) -> Sequence[str] | None:
    """Every piece that is a row of whole parts is those parts."""
    concat = match.builder.producer(match.node.inputs[0])
    if concat is None or concat.op.name != "Concat" or not _has_same_axis(match, concat):
        return None
    storages = {
        *(match.builder.tensors[t].storage for t in concat.inputs),
        *(match.builder.storages.get(o) for o in match.node.outputs),
    }
    pieces = _group_parts(match, concat)
    # Parts or pieces that are stored differently are rounded on the way.
    if pieces is None or len(storages) > 1:
        return None
    if any(len(parts) > 1 for parts in pieces) and not match.is_read_once(match.node.inputs[0]):
        return None  # the whole is needed as well: its pieces are copied either way
    results = zip(pieces, match.node.outputs, strict=True)
    return [
        parts[0]
        if len(parts) == 1
        else match.builder.one("Concat", parts, concat.attrs, outputs=[o], like=match.node)
        for parts, o in results
    ]


def _group_parts(match: Match, concat: Node) -> list[list[str]] | None:
    """The parts of each piece; None if one begins or ends within a part."""
    axis = concat.attributes(AxisAttributes).axis
    part_ends = list(accumulate(match.builder.shape(part)[axis] for part in concat.inputs))
    piece_ends = list(accumulate(match.node.attributes(SplitAttributes).sizes))
    if (
        not set(piece_ends) <= set(part_ends)
        or len({*part_ends}) != len(part_ends)
        or len({*piece_ends}) != len(piece_ends)
    ):
        return None
    bounds = [0, *(part_ends.index(w) + 1 for w in piece_ends)]
    return [list(concat.inputs[a:b]) for a, b in pairwise(bounds)]


def _has_same_axis(match: Match, other: Node) -> bool:
    rank = len(match.shape(0))
    return len({node.attributes(AxisAttributes).axis % rank for node in (match.node, other)}) == 1
