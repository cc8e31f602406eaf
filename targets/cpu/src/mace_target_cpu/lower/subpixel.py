"""A transposed convolution with constant weights as a convolution: of stride s, every s-th result sees the same part of the filter.

The parts of the filter become filters of one convolution, whose results are then laid between each other (W.
Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    def of(cls, sizes: tuple[int, int, int], stride: int, pad: int, dilation: int) -> Phases:
        """From the sizes of input, filter and output; Refused for a dilated filter with a stride."""
        size, kernel, out = sizes
        if stride > 1 and dilation > 1 and kernel > 1:
            raise Refused("a transposed convolution has both stride and dilation", code="attribute")
        taps = -(-kernel // stride)
        reach = (taps - 1) * (dilation if stride == 1 else 1)
        first, last = pad // stride, (out - 1 + pad) // stride
        before = reach - first
        if before < 0:
            raise Refused("a transposed convolution has more padding than filter", code="attribute")
        after = max(last - first + 1 + reach - size - before, 0)
        return cls(stride, taps, before, after, size + before + after - reach, pad - first * stride)


def convolution(node: Node, to: Lowering) -> Iterator[Node]:
    """The nodes that compute a ConvTranspose.

    Refused where it is none of constant weights, or its axes do not divide.
    """
    x, w, y = (to.tensors[t] for t in (*node.inputs[:2], *node.outputs))
    weights, own = to.constant(w.name), node.attributes(ConvTransposeAttributes)
    if weights is None:
        raise Refused(f"{w.name} is computed, not a constant", code="other")
    sizes = zip(x.shape[1:-1], w.shape[1:-1], y.shape[1:-1], strict=True)
    windows = zip(own.strides, own.pads_before, own.dilations, strict=True)
    axes = [Phases.of(size, *window) for size, window in zip(sizes, windows, strict=True)]
    parts = prod(p.stride for p in axes)
    inputs = [x.name, *_filters(node, to, axes, weights), *_bias(node, to, parts)]
    attrs = ConvAttributes(
        strides=(1,) * len(axes),
        pads_before=tuple(p.before for p in axes),
        pads_after=tuple(p.after for p in axes),
        dilations=tuple(d if p.stride == 1 else 1 for d, p in zip(own.dilations, axes, strict=True)),
        group=own.group,
        low=own.low,
        high=own.high,
    )
    places = tuple(p.places for p in axes)
    if parts == 1 and places == y.shape[1:-1]:
        yield _node(node, "Conv", inputs, y.name, attrs)
        return
    made = _temporary(to, y, (x.shape[0], *places, parts * y.shape[-1]))
    yield _node(node, "Conv", inputs, made, attrs)
    yield from _between(node, to, axes, made)


def _temporary(to: Lowering, y: Tensor, shape: Shape) -> str:
    return to.temporary(replace(y, name=f"{y.name}.parts", shape=shape))


def _node(like: Node, op: str, inputs: Sequence[str], y: str, attrs: Attributes) -> Node:
    return replace(like, op=core_ops()[op], inputs=tuple(inputs), outputs=(y,), attrs=attrs)


def _filters(node: Node, to: Lowering, axes: Sequence[Phases], weights: Array) -> tuple[str, ...]:
    """Filters [groups * parts * outputs, *taps, inputs], turned round, from [groups * outputs, *kernel, inputs]."""
    w, group = to.tensors[node.inputs[1]], node.attributes(ConvTransposeAttributes).group
    outputs, inner, rank = w.shape[0] // group, w.shape[-1], len(axes)
    pads = [(0, p.taps * p.stride - k) for p, k in zip(axes, w.shape[1:-1], strict=True)]
    nothing = w.quant.zero_point[0] if w.quant else 0
    whole = np.pad(weights, [(0, 0), *pads, (0, 0)], constant_values=nothing)
    split = whole.reshape(group, outputs, *(n for p in axes for n in (p.taps, p.stride)), inner)
    turned = np.flip(split, tuple(2 + 2 * i for i in range(rank)))
    perm = (0, *(3 + 2 * i for i in range(rank)), 1, *(2 + 2 * i for i in range(rank)), 2 + 2 * rank)
    made = np.ascontiguousarray(turned.transpose(perm)).reshape(-1, *(p.taps for p in axes), inner)
    quant = _repeated(w.quant, group, prod(p.stride for p in axes))
    return (to.once((w.name, "parts", made.shape), lambda: to.folded(f"{w.name}.parts", made, quant)),)


def _bias(node: Node, to: Lowering, parts: int) -> tuple[str, ...]:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return ()
    name, group = node.inputs[2], node.attributes(ConvTransposeAttributes).group
    bias = to.constant(name)
    if bias is None:
        raise Refused(f"{name} is computed, not a constant", code="other")
    each, quant = (
        np.repeat(bias.reshape(group, 1, -1), parts, axis=1).reshape(-1),
        _repeated(to.tensors[name].quant, group, parts),
    )
    return (to.once((name, "parts", each.shape), lambda: to.folded(f"{name}.parts", each, quant)),)


def _repeated(quant: Quant | None, group: int, parts: int) -> Quant | None:
    """Scales for every channel repeated for the parts."""
    if quant is None or quant.axis is None:
        return quant
    scale, zero = (
        tuple(np.repeat(np.reshape(v, (group, 1, -1)), parts, axis=1).reshape(-1).tolist())
        for v in (quant.scale, quant.zero_point)
    )
    return Quant(scale, zero, quant.axis)


def _between(node: Node, to: Lowering, axes: Sequence[Phases], made: str) -> Iterator[Node]:
    """Lay the parts [batch * place, places, groups, *parts, outputs] between each other, and cut the result out."""
    x, y, rank = to.tensors[made], to.tensors[node.outputs[0]], len(axes)
    group = node.attributes(ConvTransposeAttributes).group
    places = [p.places for p in axes]
    apart = (x.shape[0] * places[0], *places[1:], group, *(p.stride for p in axes), y.shape[-1] // group)
    perm = (*(n for i in range(rank) for n in (i, 1 + rank + i)), rank, 1 + 2 * rank)
    whole = (x.shape[0], *(p.places * p.stride for p in axes), y.shape[-1])
    names = [_temporary(to, y, shape) for shape in (apart, tuple(apart[i] for i in perm), whole)]
    yield _node(node, "Reshape", [made], names[0], ReshapeAttributes(apart))
    yield _node(node, "Transpose", [names[0]], names[1], TransposeAttributes(perm))
    if whole == y.shape:
        yield _node(node, "Reshape", [names[1]], y.name, ReshapeAttributes(whole))
        return
    yield _node(node, "Reshape", [names[1]], names[2], ReshapeAttributes(whole))
    cut = SliceAttributes((0, *(p.crop for p in axes), 0), y.shape, (1,) * len(y.shape))
    yield _node(node, "Slice", [names[2]], y.name, cut)
