"""merge-pads: padding of what was padded is one wider padding."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Attrs, Graph
from mace_core.ops.arguments import integers
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
    if inner is None or not _can_merge(inner.attrs, match.node.attrs):
        return None
    if match.new.tensors[inner.inputs[0]].storage != match.new.storages.get(match.node.outputs[0]):
        return None  # the constant would be rounded once where it was rounded twice
    wider = {key: _add_pads(inner.attrs, match.node.attrs, key) for key in ("before", "after")}
    return match.new.add(
        "Pad",
        inner.inputs,
        {**match.node.attrs, **wider},
        outputs=match.node.outputs,
        like=match.merge_origins(inner),
    )


def _can_merge(inner: Attrs, outer: Attrs) -> bool:
    """Reflections and rotations see what the inner padding made, so they do not add up."""
    return inner["mode"] == outer["mode"] == "edge" or (
        inner["mode"] == outer["mode"] == "constant" and inner["value"] == outer["value"]
    )


def _add_pads(inner: Attrs, outer: Attrs, key: str) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(integers(inner, key), integers(outer, key), strict=True))
