"""merge-concats: tensors that are put together in steps are put together at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from mace_core.ir import Graph, Node
from mace_core.ops.shapes import AxisAttributes
from mace_core.rewrite import Match, rewrite


def merge_concats(graph: Graph) -> Graph:
    """Merge nested Concats: Concat(a, Concat(b, c)) -> Concat(a, b, c).

    Where only the outer one reads the inner one, along the same axis, and all storages are equal. Exact:
    elements only move.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node = match.node
    if node.op.name != "Concat":
        return None
    inner = [_find_inner(match, i) for i in range(len(node.inputs))]
    if not any(inner):
        return None
    parts: list[str] = []
    for name, concat in zip(node.inputs, inner, strict=True):
        parts += concat.inputs if concat else (name,)
    sources = chain.from_iterable(n.sources for n in (*filter(None, inner), node))
    like = replace(node, sources=tuple(dict.fromkeys(sources)))
    return match.builder.add("Concat", parts, node.attrs, outputs=node.outputs, like=like)


def _find_inner(match: Match, index: int) -> Node | None:
    """The Concat that makes a part, if it only moves its own parts, along the same axis."""
    concat = match.sole_producer(index, "Concat")
    if concat is None:
        return None
    rank = len(match.shape(index))
    axes = {node.attributes(AxisAttributes).axis % rank for node in (concat, match.node)}
    storages = {match.builder.tensors[t].storage for t in (*concat.inputs, *concat.outputs)}
    # A part in another storage would be rounded once where the chain rounds twice.
    return concat if len(storages) == 1 and len(axes) == 1 else None
