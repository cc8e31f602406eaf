"""cancel-splits: what is split and joined again, or joined and split again, need not move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from mace_core.ir import Graph, Node
from mace_core.ops.arguments import integer, integers
from mace_core.rewrite import Match, rewrite


def cancel_splits(graph: Graph) -> Graph:
    """Drop a Concat of all pieces of a Split in their order, and a Split between the parts of a Concat.

    Both along one axis.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Concat":
        return _joined_again(match)
    return _split_again(match) if match.node.op.name == "Split" else None


def _joined_again(match: Match) -> Sequence[str] | None:
    split = match.new.producer(match.node.inputs[0])
    if (
        split is None
        or split.op.name != "Split"
        or split.outputs != match.node.inputs
        or not _alike(match, split)
    ):
        return None
    storage = match.new.tensors[split.inputs[0]].storage
    same = storage == match.new.storages.get(match.node.outputs[0])
    return (
        split.inputs if same and all(match.new.tensors[p].storage == storage for p in split.outputs) else None
    )


def _split_again(match: Match) -> Sequence[str] | None:
    """Every piece that is a row of whole parts is those parts."""
    joined = match.new.producer(match.node.inputs[0])
    if joined is None or joined.op.name != "Concat" or not _alike(match, joined):
        return None
    storages = {
        *(match.new.tensors[t].storage for t in joined.inputs),
        *(match.new.storages.get(o) for o in match.node.outputs),
    }
    pieces = _pieces(match, joined)
    if pieces is None or len(storages) > 1:
        return None
    if any(len(parts) > 1 for parts in pieces) and match.uses.get(match.node.inputs[0], 1) != 1:
        return None  # the whole is needed as well: its pieces are copied either way
    axis = {"axis": joined.attrs["axis"]}
    results = zip(pieces, match.node.outputs, strict=True)
    return [
        parts[0] if len(parts) == 1 else match.new.one("Concat", parts, axis, outputs=[o], like=match.node)
        for parts, o in results
    ]


def _pieces(match: Match, joined: Node) -> list[list[str]] | None:
    """The parts of each piece; None if one begins or ends within a part."""
    axis = integer(joined.attrs, "axis")
    ends = list(accumulate(match.new.shape(part)[axis] for part in joined.inputs))
    wanted = list(accumulate(integers(match.node.attrs, "sizes")))
    if not set(wanted) <= set(ends) or len({*ends}) != len(ends) or len({*wanted}) != len(wanted):
        return None
    bounds = [0, *(ends.index(w) + 1 for w in wanted)]
    return [list(joined.inputs[a:b]) for a, b in pairwise(bounds)]


def _alike(match: Match, other: Node) -> bool:
    rank = len(match.shape(0))
    return integer(match.node.attrs, "axis") % rank == integer(other.attrs, "axis") % rank
