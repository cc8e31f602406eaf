"""fuse-crop: edges that are cut off a padded convolution are not computed."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match, rewrite


def fuse_crop(graph: Graph) -> Graph:
    """Make a Slice of the edges of a Conv's result smaller padding.

    Slice(Conv(x, pads=p), c) -> Conv(x, pads=p - c * stride).

    Where the padding is at least as wide as what is cut off. Exact: the results that stay see the same
    windows.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    conv = match.sole_producer(0, "Conv") if match.node.op.name == "Slice" else None
    conv = conv or _find_stored_conv(match)
    if (
        conv is None
        or any(step != 1 for step in integers(match.node.attrs, "steps"))
        or 0 in integers(match.node.attrs, "sizes")
    ):
        return None
    shape = match.shape(0)
    first, sizes = (integers(match.node.attrs, key) for key in ("starts", "sizes"))
    last = tuple(n - f - s for n, f, s in zip(shape, first, sizes, strict=True))
    # Only spatial edges come from padding, not images or channels.
    if any((first[0], first[-1], last[0], last[-1])) or not any((*first, *last)):
        return None
    before, after = _reduce_padding(conv, "pads_before", first), _reduce_padding(conv, "pads_after", last)
    # What is cut off beyond the padding was computed from the image: smaller padding cannot remove it.
    if min((*before, *after)) < 0:
        return None
    attrs = {**conv.attrs, "pads_before": before, "pads_after": after}
    return match.new.add(
        "Conv", conv.inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(conv)
    )


def _find_stored_conv(match: Match) -> Node | None:
    """A Conv whose result is stored as the Slice's is, so that cutting it rounds nothing more."""
    name = match.node.inputs[0] if match.node.op.name == "Slice" else ""
    conv = match.new.producer(name) if name and match.uses.get(name, 1) == 1 else None
    same = conv and match.new.tensors[name].storage == match.new.storages.get(match.node.outputs[0])
    return conv if conv and same and conv.op.name == "Conv" else None


def _reduce_padding(conv: Node, key: str, cut: tuple[int, ...]) -> tuple[int, ...]:
    """The padding without what made so many results."""
    pairs = zip(integers(conv.attrs, key), cut[1:-1], integers(conv.attrs, "strides"), strict=True)
    return tuple(pad - n * stride for pad, n, stride in pairs)
