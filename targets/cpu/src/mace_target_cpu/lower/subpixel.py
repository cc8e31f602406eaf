"""A transposed convolution with constant weights as a convolution.

Of stride s, every s-th result sees the same part of the filter. These parts become filters of one
convolution, whose results are then laid between each other (W. Shi et al., "Is the deconvolution layer the
same as a convolutional layer?", 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Node, Quant, Shape, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.ops import core_ops
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.transpose import TransposeAttributes


@dataclass(frozen=True)
class Phases:
    """One spatial axis.

    taps: of the part of the filter; first: the first place of the convolution; crop: results to drop before
    it.
    """

    stride: int
    taps: int
    before: int
    after: int
    places: int
    crop: int

    @classmethod
    def from_sizes(cls, sizes: tuple[int, int, int], stride: int, pad: int, dilation: int) -> Phases:
        """From the sizes of input, filter and output; Refused for a dilated filter with a stride."""
        size, kernel, out = sizes
        # Taps of one phase would lie between those of others, at distances of no common stride.
        if stride > 1 and dilation > 1 and kernel > 1:
            raise Refused("a transposed convolution has both stride and dilation", code="attribute")
        taps = -(-kernel // stride)
        reach = (taps - 1) * (dilation if stride == 1 else 1)
        first, last = pad // stride, (out - 1 + pad) // stride
        # Padding of the convolution: what its first window reaches in front of the input.
        before = reach - first
        if before < 0:
            raise Refused("a transposed convolution has more padding than filter", code="attribute")
        after = max(last - first + 1 + reach - size - before, 0)
        return cls(stride, taps, before, after, size + before + after - reach, pad - first * stride)


def convolution(node: Node, lowering: Lowering) -> Iterator[Node]:
    """The nodes that compute a ConvTranspose.

    Refused where it is none of constant weights, or its axes do not divide.
    """
    x, w, y = (lowering.tensors[t] for t in (*node.inputs[:2], *node.outputs))
    weights, conv_attrs = lowering.constant(w.name), node.attributes(ConvTransposeAttributes)
    if weights is None:
        raise Refused(f"{w.name} is computed, not a constant", code="other")
    sizes = zip(x.shape[1:-1], w.shape[1:-1], y.shape[1:-1], strict=True)
    windows = zip(conv_attrs.strides, conv_attrs.pads_before, conv_attrs.dilations, strict=True)
    axes = [Phases.from_sizes(size, *window) for size, window in zip(sizes, windows, strict=True)]
    parts = prod(p.stride for p in axes)
    inputs = [x.name, *_split_filters(node, lowering, axes, weights), *_repeat_bias(node, lowering, parts)]
    attrs = ConvAttributes(
        strides=(1,) * len(axes),
        pads_before=tuple(p.before for p in axes),
        pads_after=tuple(p.after for p in axes),
        dilations=tuple(d if p.stride == 1 else 1 for d, p in zip(conv_attrs.dilations, axes, strict=True)),
        group=conv_attrs.group,
        low=conv_attrs.low,
        high=conv_attrs.high,
    )
    places = tuple(p.places for p in axes)
    # Without strides the parts are one, and lie where the result does.
    if parts == 1 and places == y.shape[1:-1]:
        yield _make_node(node, "Conv", inputs, y.name, attrs)
        return
    result = _add_temporary(lowering, y, (x.shape[0], *places, parts * y.shape[-1]))
    yield _make_node(node, "Conv", inputs, result, attrs)
    yield from _interleave_parts(node, lowering, axes, result)


def _add_temporary(lowering: Lowering, y: Tensor, shape: Shape) -> str:
    return lowering.temporary(replace(y, name=f"{y.name}.parts", shape=shape))


def _make_node(like: Node, op: str, inputs: Sequence[str], y: str, attrs: Attributes) -> Node:
    return replace(like, op=core_ops()[op], inputs=tuple(inputs), outputs=(y,), attrs=attrs)


def _split_filters(node: Node, lowering: Lowering, axes: Sequence[Phases], weights: Array) -> tuple[str, ...]:
    """Filters [groups * parts * outputs, *taps, inputs], reversed, from [groups * outputs, *kernel, in]."""
    w, group = lowering.tensors[node.inputs[1]], node.attributes(ConvTransposeAttributes).group
    outputs, inner, rank = w.shape[0] // group, w.shape[-1], len(axes)
    pads = [(0, p.taps * p.stride - k) for p, k in zip(axes, w.shape[1:-1], strict=True)]
    # Padding of the filter must stand for 0, which a zero point does.
    nothing = w.quant.zero_point[0] if w.quant else 0
    full = np.pad(weights, [(0, 0), *pads, (0, 0)], constant_values=nothing)
    pairs = chain.from_iterable((p.taps, p.stride) for p in axes)
    split = full.reshape(group, outputs, *pairs, inner)
    # A transposed convolution is a convolution with its filter reversed.
    reversed_taps = np.flip(split, tuple(2 + 2 * i for i in range(rank)))
    perm = (0, *(3 + 2 * i for i in range(rank)), 1, *(2 + 2 * i for i in range(rank)), 2 + 2 * rank)
    result = np.ascontiguousarray(reversed_taps.transpose(perm)).reshape(-1, *(p.taps for p in axes), inner)
    quant = _repeat_for_parts(w.quant, group, prod(p.stride for p in axes))
    return (
        lowering.once(
            (w.name, "parts", result.shape), lambda: lowering.add_folded(f"{w.name}.parts", result, quant)
        ),
    )


def _repeat_bias(node: Node, lowering: Lowering, parts: int) -> tuple[str, ...]:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return ()
    name, group = node.inputs[2], node.attributes(ConvTransposeAttributes).group
    bias = lowering.constant(name)
    if bias is None:
        raise Refused(f"{name} is computed, not a constant", code="other")
    each, quant = (
        np.repeat(bias.reshape(group, 1, -1), parts, axis=1).reshape(-1),
        _repeat_for_parts(lowering.tensors[name].quant, group, parts),
    )
    return (
        lowering.once((name, "parts", each.shape), lambda: lowering.add_folded(f"{name}.parts", each, quant)),
    )


def _repeat_for_parts(quant: Quant | None, group: int, parts: int) -> Quant | None:
    """Scales for every channel repeated for the parts."""
    if quant is None or quant.axis is None:
        return quant
    scale, zero = (
        tuple(np.repeat(np.reshape(v, (group, 1, -1)), parts, axis=1).reshape(-1).tolist())
        for v in (quant.scale, quant.zero_point)
    )
    return Quant(scale, zero, quant.axis)


def _interleave_parts(node: Node, lowering: Lowering, axes: Sequence[Phases], result: str) -> Iterator[Node]:
    """Lay the parts between each other, and cut the result out.

    The convolution gives [batch * place, places, groups, *parts, outputs].
    """
    x, y, rank = lowering.tensors[result], lowering.tensors[node.outputs[0]], len(axes)
    group = node.attributes(ConvTransposeAttributes).group
    places = [p.places for p in axes]
    apart = (x.shape[0] * places[0], *places[1:], group, *(p.stride for p in axes), y.shape[-1] // group)
    interleaved = chain.from_iterable((i, 1 + rank + i) for i in range(rank))
    perm = (*interleaved, rank, 1 + 2 * rank)
    full = (x.shape[0], *(p.places * p.stride for p in axes), y.shape[-1])
    names = [_add_temporary(lowering, y, shape) for shape in (apart, tuple(apart[i] for i in perm), full)]
    yield _make_node(node, "Reshape", [result], names[0], ReshapeAttributes(apart))
    yield _make_node(node, "Transpose", [names[0]], names[1], TransposeAttributes(perm))
    if full == y.shape:
        yield _make_node(node, "Reshape", [names[1]], y.name, ReshapeAttributes(full))
        return
    yield _make_node(node, "Reshape", [names[1]], names[2], ReshapeAttributes(full))
    cut = SliceAttributes((0, *(p.crop for p in axes), 0), y.shape, (1,) * len(y.shape))
    yield _make_node(node, "Slice", [names[2]], y.name, cut)
