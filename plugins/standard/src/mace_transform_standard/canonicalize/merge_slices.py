"""merge-slices: a part of a part is one part."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.ops.slice import SliceAttributes
from mace_core.rewrite import Match, rewrite


def merge_slices(graph: Graph) -> Graph:
    """Merge Slices.

    Slice(Slice(x, s, t), u, v) -> Slice(x, s + u * t, v * t), starts and steps of each axis.

    If other nodes read the inner Slice it stays, and this one moves no more bytes than before. Exact:
    elements only move, and a change of storage, which would round, stops it.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    inner = match.builder.producer(match.node.inputs[0]) if match.node.op.name == "Slice" else None
    if inner is None or inner.op.name != "Slice":
        return None
    # A Slice to another storage rounds its elements.
    if match.builder.tensors[inner.inputs[0]].storage != match.builder.tensors[inner.outputs[0]].storage:
        return None
    first, second = inner.attributes(SliceAttributes), match.node.attributes(SliceAttributes)
    starts = zip(first.starts, second.starts, first.steps, strict=True)
    attrs = SliceAttributes(
        starts=tuple(f + s * by for f, s, by in starts),
        sizes=second.sizes,
        steps=tuple(s * by for s, by in zip(second.steps, first.steps, strict=True)),
    )
    return match.builder.add(
        "Slice", inner.inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(inner)
    )
