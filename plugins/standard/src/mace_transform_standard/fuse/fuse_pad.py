"""fuse-pad: zeros around an image are the padding of the convolution that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mace_core.ir import Graph
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.rewrite import Match, rewrite


def fuse_pad(graph: Graph) -> Graph:
    """Make zeros around an image the padding of the Conv that reads it.

    Conv(Pad(x, p)) -> Conv(x, pads + p).

    For spatial axes. The Pad stays for other readers, and no Conv needs its copy. Exact: the windows see the
    same.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    pad = match.builder.producer(match.node.inputs[0]) if match.node.op.name == "Conv" else None
    if pad is None or pad.op.name != "Pad":
        return None
    border, conv = pad.attributes(PadAttributes), match.node.attributes(ConvAttributes)
    if (border.mode, border.value) != ("constant", 0.0):
        return None
    # Zeros of another storage are stored otherwise.
    if match.builder.tensors[pad.inputs[0]].storage != match.builder.tensors[pad.outputs[0]].storage:
        return None
    before, after = border.before, border.after
    # A Conv pads spatial axes, neither images nor channels.
    if any((before[0], before[-1], after[0], after[-1])):
        return None
    attrs = replace(
        conv, pads_before=_add_pads(conv.pads_before, before), pads_after=_add_pads(conv.pads_after, after)
    )
    inputs = [pad.inputs[0], *match.node.inputs[1:]]
    return match.builder.add("Conv", inputs, attrs, outputs=match.node.outputs, like=match.merge_origins(pad))


def _add_pads(pads: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    """Add the padding of all axes to that of the spatial ones; batch and channels have none."""
    return tuple(a + b for a, b in zip(pads, more[1:-1], strict=True))
