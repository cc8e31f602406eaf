"""merge-pads: padding of what was padded is one wider padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mace_core.ir import Graph, Shape
from mace_core.ops.pad import PadAttributes
from mace_core.rewrite import Match, rewrite


def merge_pads(graph: Graph) -> Graph:
    """Merge Pads: Pad(Pad(x, p), q) -> Pad(x, p + q).

    Where both put the same constant or both repeat the edge, and nothing else reads the inner one. Exact:
    each new element has the same value. Reflected and wrapped padding reads what the inner Pad made, so
    widths do not add up.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    inner = match.sole_producer(0, "Pad") if match.node.op.name == "Pad" else None
    if inner is None:
        return None
    narrow, wide = inner.attributes(PadAttributes), match.node.attributes(PadAttributes)
    if not _can_merge(narrow, wide):
        return None
    if match.builder.tensors[inner.inputs[0]].storage != match.builder.storages.get(match.node.outputs[0]):
        return None  # the constant would be rounded once where it was rounded twice
    before, after = _add_pads(narrow.before, wide.before), _add_pads(narrow.after, wide.after)
    return match.builder.add(
        "Pad",
        inner.inputs,
        replace(wide, before=before, after=after),
        outputs=match.node.outputs,
        like=match.merge_origins(inner),
    )


def _can_merge(inner: PadAttributes, outer: PadAttributes) -> bool:
    """Reflections and rotations see what the inner padding made, so they do not add up."""
    if inner.mode != outer.mode:
        return False
    return inner.mode == "edge" or (inner.mode == "constant" and inner.value == outer.value)


def _add_pads(inner: Shape, outer: Shape) -> Shape:
    return tuple(a + b for a, b in zip(inner, outer, strict=True))
