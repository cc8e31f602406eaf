"""Convolutions: TensorFlow's filters are [*kernel, I, O], the IR's [O, *kernel, I]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import (
    Layout,
    channels_last,
    finished,
    layout,
    paddings,
    per_axis,
    reach,
)


def convolution(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are the input and filters; there are as many groups as filters are short of channels."""
    how = layout(node)
    _filters(node, how)
    weights = node.permuted(1, (how.rank - 1, *range(how.rank - 1)))
    channels, taken = how.others(node.shape(0))[1], node.shape(1)[-2]
    node.refuse_unless(
        taken > 0 and channels % taken == 0, f"its filters take {taken} channels of {channels}"
    )
    attrs = {**geometry(node, how, node.shape(1)[:-2]), "group": channels // taken}
    return finished(node, "Conv", [channels_last(node, node.input(0), how), weights], attrs, how)


def depthwise(node: TensorFlowNode) -> Sequence[Held]:
    """Filters [*kernel, I, multiplier]: every channel has as many of its own."""
    how = layout(node)
    _filters(node, how)
    *kernel, channels, multiplier = node.shape(1)
    whole = (channels * multiplier, *kernel, 1)

    def regroup(weights: Array) -> Array:
        return np.moveaxis(weights.reshape(*kernel, channels * multiplier), -1, 0).reshape(whole)

    if node.array_is_constant(1):
        weights = node.derived(1, "depthwise", regroup)
    else:
        flat = node.reshape(node.input(1), (*kernel, 1, channels * multiplier), "filters")
        rank = len(kernel)
        weights = node.emit("Transpose", [flat], {"perm": (rank + 1, *range(rank + 1))}, tag="turned")
    attrs = {**geometry(node, how, kernel), "group": channels}
    return finished(node, "Conv", [channels_last(node, node.input(0), how), weights], attrs, how)


def _filters(node: TensorFlowNode, how: Layout) -> None:
    node.refuse_unless(
        node.rank(1) == how.rank, f"its filters have rank {node.rank(1)}, its input {how.rank}"
    )
    node.refuse_unless(0 not in node.shape(1), f"its filters are empty: {list(node.shape(1))}")


def geometry(node: TensorFlowNode, how: Layout, kernel: Sequence[int]) -> dict[str, Any]:
    """Strides, dilations and paddings of windows over operand 0."""
    strides, dilations = per_axis(node, "strides", how), _dilations(node, how)
    before, after = paddings(node, how.spatial(node.shape(0)), reach(kernel, dilations), strides, how)
    return {"strides": strides, "pads_before": before, "pads_after": after, "dilations": dilations}


def _dilations(node: TensorFlowNode, how: Layout) -> Shape:
    found = per_axis(node, "dilations", how, 1)
    node.refuse_unless(min(found) >= 1, f"dilations {list(found)}; each must be at least 1")
    return found


def _transposed(node: TensorFlowNode) -> Sequence[Held]:
    """The gradient of a convolution: its first operand is the size of its result, its filters are [*kernel, O, I]."""
    how = layout(node, 2)
    _filters(node, how)
    channels, taken = how.others(node.shape(2))[1], node.shape(1)[-1]
    node.refuse_unless(taken == channels, f"its filters take {taken} channels of {channels}")
    weights = node.permuted(1, (how.rank - 2, *range(how.rank - 2), how.rank - 1))
    return finished(
        node, "ConvTranspose", [channels_last(node, node.input(2), how), weights], _backwards(node, how), how
    )


def _transposed_depthwise(node: TensorFlowNode) -> Sequence[Held]:
    """The gradient of a depthwise convolution: its filters are [*kernel, O, I / O]."""
    how = layout(node, 2)
    _filters(node, how)
    channels, (made, each) = how.others(node.shape(2))[1], node.shape(1)[-2:]
    node.refuse_unless(made * each == channels, f"its filters take {made * each} channels of {channels}")
    weights = node.permuted(1, (how.rank - 2, *range(how.rank - 2), how.rank - 1))
    attrs = {**_backwards(node, how), "group": made}
    return finished(node, "ConvTranspose", [channels_last(node, node.input(2), how), weights], attrs, how)


def _backwards(node: TensorFlowNode, how: Layout) -> dict[str, Any]:
    """Strides, dilations and paddings of windows over the result, whose size is operand 0.

    Operand 2 has a row for each window.
    """
    sizes, size = node.ints(0, "output size"), how.spatial(node.shape(2))
    wanted = how.spatial(sizes) if len(sizes) == how.rank else sizes
    node.refuse_unless(len(wanted) == len(size), f"its output size {list(sizes)} for {how.rank} axes")
    strides, dilations = per_axis(node, "strides", how), _dilations(node, how)
    extent = reach(node.shape(1)[:-2], dilations)
    before, after = paddings(node, wanted, extent, strides, how)
    spans = zip(size, strides, extent, before, after, strict=True)
    made = tuple((n - 1) * s + e - b - a for n, s, e, b, a in spans)
    extra = tuple(w - m for w, m in zip(wanted, made, strict=True))
    fits = all(0 <= e < s for e, s in zip(extra, strides, strict=True))
    node.refuse_unless(
        fits, f"an output of {list(wanted)} from an input of {list(size)} with strides {list(strides)}"
    )
    return {
        "strides": strides,
        "pads_before": before,
        "pads_after": after,
        "dilations": dilations,
        "output_padding": extra,
    }


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Conv2D": convolution,
        "Conv2DBackpropInput": _transposed,
        "Conv3D": convolution,
        "Conv3DBackpropInputV2": _transposed,
        "DepthwiseConv2dNative": depthwise,
        "DepthwiseConv2dNativeBackpropInput": _transposed_depthwise,
    }
)
