"""fuse-activation: Relu and Clip are the limits of the op before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mace_core.ir import Graph, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.unary_attrs import ClipAttributes
from mace_core.rewrite import Match, rewrite

LIMITED = ("Conv", "ConvTranspose", "MatMul")


def fuse_activation(graph: Graph) -> Graph:
    """Make Relu and Clip the limits of the op before them: Clip(Conv(x), a, b) -> Conv(x, low=a, high=b).

    For Conv, ConvTranspose and MatMul; Clip(Clip(x)) -> Clip(x) too. Limits meet as min(max(v, low), high)
    does, so it is exact also where they do not overlap.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Relu", "Clip"):
        return None
    low, high = _limits(match.node)
    feeder = match.sole_producer(0, *LIMITED, "Relu", "Clip")
    # Clip with min above max gives max for every element; limits of a Conv promise nothing there.
    if feeder is None or low > high:
        return None
    inner_low, inner_high = _limits(feeder)
    inner_low = min(inner_low, inner_high)  # Clip with min above max again
    # As the two clamps one after the other, also where their ranges do not overlap.
    low, high = min(max(inner_low, low), high), max(min(inner_high, high), low)
    if feeder.op.name in LIMITED:
        clamped = replace(feeder.attributes(ClampAttributes), low=low, high=high)
        return match.builder.add(
            feeder.op, feeder.inputs, clamped, outputs=match.node.outputs, like=match.merge_origins(feeder)
        )
    clip = ClipAttributes(low, high)
    return match.builder.add(
        "Clip", feeder.inputs, clip, outputs=match.node.outputs, like=match.merge_origins(feeder)
    )


def _limits(node: Node) -> tuple[float, float]:
    if node.op.name == "Relu":
        return 0.0, math.inf
    if node.op.name == "Clip":
        clip = node.attributes(ClipAttributes)
        return float(clip.min), float(clip.max)
    attrs = node.attributes(ClampAttributes)
    return attrs.low, attrs.high
