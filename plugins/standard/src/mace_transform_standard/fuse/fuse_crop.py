"""fuse-crop: edges that are cut off a padded convolution are not computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mace_core.ir import Graph, Node, Shape
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.slice import SliceAttributes
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
    if conv is None:
        return None
    cut, attrs = match.node.attributes(SliceAttributes), conv.attributes(ConvAttributes)
    if any(step != 1 for step in cut.steps) or 0 in cut.sizes:
        return None
    first = cut.starts
    last = tuple(n - f - s for n, f, s in zip(match.shape(0), first, cut.sizes, strict=True))
    # Only spatial edges come from padding, not images or channels.
    if any((first[0], first[-1], last[0], last[-1])) or not any((*first, *last)):
        return None
    before = _reduce_padding(attrs.pads_before, first, attrs.strides)
    after = _reduce_padding(attrs.pads_after, last, attrs.strides)
    # What is cut off beyond the padding was computed from the image: smaller padding cannot remove it.
    if min((*before, *after)) < 0:
        return None
    attrs = replace(attrs, pads_before=before, pads_after=after)
    return match.builder.add(
        "Conv", conv.inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(conv)
    )


def _find_stored_conv(match: Match) -> Node | None:
    """A Conv whose result is stored as the Slice's is, so that cutting it rounds nothing more."""
    name = match.node.inputs[0] if match.node.op.name == "Slice" else ""
    conv = match.builder.producer(name) if name and match.is_read_once(name) else None
    same = conv and match.builder.tensors[name].storage == match.builder.storages.get(match.node.outputs[0])
    return conv if conv and same and conv.op.name == "Conv" else None


def _reduce_padding(pads: Shape, cut: Shape, strides: Shape) -> Shape:
    """The padding without what made so many results."""
    return tuple(pad - n * stride for pad, n, stride in zip(pads, cut[1:-1], strides, strict=True))
