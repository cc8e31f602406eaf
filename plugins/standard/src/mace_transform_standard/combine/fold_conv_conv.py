"""fold-conv-conv: a 1x1 convolution and the one after it are one, where that is less work."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ConvAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow


def fold_conv_conv(graph: Graph) -> Graph:
    """Multiply the filters of a 1x1 Conv into those of its only reader: V * (U * x) -> (V U) * x.

    Where the first has no limits, padding, strides or groups, and the product of filters needs fewer
    multiplications than both: it does where the first makes many channels of few. A bias b of the first
    becomes V b in the second's, unless the second is padded: zeros around U x + b are not U 0 + b. Rounding
    differs as in every reordered sum.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    first = match.sole_producer(0, "Conv") if match.node.op.name == "Conv" else None
    if first is None or not _is_linear_pixelwise(match.builder, first):
        return None
    attrs = match.node.attributes(ConvAttributes)
    if attrs.group != 1:
        return None
    filters, outer = match.builder.constant(first.inputs[1]), match.constant(1)
    shift, bias = (_read_bias(match.builder, node) for node in (first, match.node))
    if (
        filters is None
        or outer is None
        or shift is None
        or bias is None
        or not _saves_products(match, first, outer)
    ):
        return None
    # Zeros around W x + b are not W 0 + b, so a bias keeps the two apart where the second is padded.
    if np.any(shift) and any((*attrs.pads_before, *attrs.pads_after)):
        return None
    # Double precision, so that each new filter is rounded once.
    wide = outer.astype(np.float64)
    inner = filters.reshape(filters.shape[0], -1).astype(np.float64)
    total = bias + np.tensordot(wide, np.broadcast_to(shift, inner.shape[:1]), 1).sum(
        axis=tuple(range(1, wide.ndim - 1))
    )
    stem, product = match.node.outputs[0], narrow(wide @ inner, outer.dtype)
    sums = narrow(np.broadcast_to(total, outer.shape[:1]), outer.dtype)
    if product is None or sums is None:
        return None
    names = [match.builder.weight(f"{stem}.filters", product)]
    # A bias of zeros would be read and added for nothing.
    if np.any(total):
        names.append(match.builder.weight(f"{stem}.bias", sums))
    return match.builder.add(
        "Conv",
        [first.inputs[0], *names],
        attrs,
        outputs=match.node.outputs,
        like=match.merge_origins(first),
    )


def _is_linear_pixelwise(builder: Builder, conv: Node) -> bool:
    attrs = conv.attributes(ConvAttributes)
    free = not attrs.is_clamped and attrs.group == 1
    plain = not any((*attrs.pads_before, *attrs.pads_after)) and set(attrs.strides) == {1}
    return free and plain and math.prod(builder.shape(conv.inputs[1])[1:-1]) == 1


def _read_bias(builder: Builder, conv: Node) -> Array | None:
    """In double precision; zero if there is none, None if it is no constant."""
    if len(conv.inputs) < 3 or not conv.inputs[2]:
        return np.zeros(())
    bias = builder.constant(conv.inputs[2])
    return None if bias is None else bias.astype(np.float64)


def _saves_products(match: Match, first: Node, outer: Array) -> bool:
    """Whether one Conv takes fewer products than two, counted over the whole images."""
    builder = match.builder
    pixels_in, between = math.prod(builder.shape(first.inputs[0])), builder.shape(first.outputs[0])
    (spec,) = match.node.op.infer(
        [builder.tensors[i] if i else None for i in match.node.inputs], match.node.attrs
    )
    # The two Convs compute pixels * channels * between + results * between, the merged one results *
    # channels.
    results = math.prod(spec[1]) * math.prod(outer.shape[1:-1])
    channels = builder.shape(first.inputs[0])[-1]
    return bool(results * channels < pixels_in * between[-1] + results * between[-1])
