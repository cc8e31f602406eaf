"""fuse-activation: Relu and Clip are the limits of the op before them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.ir import DType, Graph, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.unary_attrs import ClipAttributes
from mace_core.rewrite import Match, rewrite

LIMITED = ("Conv", "ConvTranspose", "MatMul")


def fuse_activation(graph: Graph) -> Graph:
    """Make Relu and Clip the limits of the op before them: Clip(Conv(x), a, b) -> Conv(x, low=a, high=b).

    For Conv, ConvTranspose and MatMul; Clip(Clip(x)) -> Clip(x) too. Limits meet as min(max(v, low), high)
    does, so it is exact also where they do not overlap, and for integers of 64 bits.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Relu", "Clip"):
        return None
    feeder = match.sole_producer(0, *LIMITED, "Relu", "Clip")
    if feeder is None:
        return None
    dtype = match.builder.tensors[match.node.inputs[0]].real.dtype
    low, high = _limits(match.node, dtype)
    # Clip with min above max gives max for every element; limits of a Conv promise nothing there.
    if low > high:
        return None
    inner_low, inner_high = _limits(feeder, dtype)
    inner_low = min(inner_low, inner_high)  # Clip with min above max again
    # As the two clamps one after the other, also where their ranges do not overlap.
    low, high = min(max(inner_low, low), high), max(min(inner_high, high), low)
    if feeder.op.name not in LIMITED:
        clip = ClipAttributes(low, high)
        return match.builder.add(
            "Clip", feeder.inputs, clip, outputs=match.node.outputs, like=match.merge_origins(feeder)
        )
    # Limits of a product are floats, which hold no integer of more than 53 bits exactly.
    if (float(low), float(high)) != (low, high):
        return None
    clamped = replace(feeder.attributes(ClampAttributes), low=float(low), high=float(high))
    return match.builder.add(
        feeder.op, feeder.inputs, clamped, outputs=match.node.outputs, like=match.merge_origins(feeder)
    )


def _limits(node: Node, dtype: DType) -> tuple[int | float, int | float]:
    """Return what a node limits elements of a type to; infinite where that is the end of the type."""
    if node.op.name == "Relu":
        return 0.0, math.inf
    if node.op.name != "Clip":
        attrs = node.attributes(ClampAttributes)
        return attrs.low, attrs.high
    clip = node.attributes(ClipAttributes)
    if dtype.is_float:
        return float(clip.min), float(clip.max)
    # Clip cuts a bound of integers towards zero and saturates it, which a Conv's limits do not.
    low, high = clip.integer_bounds(dtype)
    limits = np.iinfo(dtype.numpy)
    return -math.inf if low == limits.min else low, math.inf if high == limits.max else high
