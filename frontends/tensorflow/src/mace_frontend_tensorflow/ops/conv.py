"""Convolutions: TensorFlow's filters are [*kernel, I, O], the IR's [O, *kernel, I]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import (
    AxisOrder,
    axis_order,
    channels_last,
    done_in_order,
    paddings,
    per_axis,
    reach,
)
from mace_frontend_tensorflow.values import OptionalValue


def convolution(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a convolution; operands are the input and the filters.

    TensorFlow has no attribute for groups: there are as many as the channels are a multiple of the filters'
    depth.
    """
    order = axis_order(node)
    _check_filters(node, order)
    # A constant is permuted while the model is read, also one behind a fake quantization.
    weights = node.permute(1, (order.rank - 1, *range(order.rank - 1)))
    channels, depth = order.batch_and_channels(node.shape(0))[1], node.shape(1)[-2]
    node.refuse_unless(
        depth > 0 and channels % depth == 0, f"its filters read {depth} channels of {channels}"
    )
    attrs = {**window_attrs(node, order, node.shape(1)[:-2]), "group": channels // depth}
    x = channels_last(node, node.input(0), order)
    return done_in_order(node, "Conv", [x, weights], attrs, order)


def depthwise(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a depthwise convolution; filters are [*kernel, I, multiplier].

    Result i * multiplier + m is that of filter [..., i, m], so that the two last axes merge in their order.
    """
    order = axis_order(node)
    _check_filters(node, order)
    *kernel, channels, multiplier = node.shape(1)
    results = channels * multiplier

    def regroup(weights: Array) -> Array:
        merged = weights.reshape(*kernel, results)
        return np.moveaxis(merged, -1, 0).reshape(results, *kernel, 1)

    # Without reading it: weights of an operator outside of the cut stay on the disk.
    if node.array_is_constant(1):
        weights = node.derive(1, "depthwise", regroup)
    else:
        flat = node.reshape(node.input(1), (*kernel, 1, results), "filters")
        rank = len(kernel)
        weights = node.emit("Transpose", [flat], {"perm": (rank + 1, *range(rank + 1))}, tag="turned")
    attrs = {**window_attrs(node, order, kernel), "group": channels}
    x = channels_last(node, node.input(0), order)
    return done_in_order(node, "Conv", [x, weights], attrs, order)


def _check_filters(node: TensorFlowNode, order: AxisOrder) -> None:
    node.refuse_unless(
        node.rank(1) == order.rank, f"its filters have rank {node.rank(1)}, its input {order.rank}"
    )
    node.refuse_unless(0 not in node.shape(1), f"its filters are empty: {list(node.shape(1))}")


def window_attrs(node: TensorFlowNode, order: AxisOrder, kernel: Sequence[int]) -> dict[str, Any]:
    """Return strides, dilations and paddings of windows over operand 0."""
    strides, dilations = per_axis(node, "strides", order), _dilations(node, order)
    extent = reach(kernel, dilations)
    before, after = paddings(node, order.spatial(node.shape(0)), extent, strides, order)
    return {"strides": strides, "pads_before": before, "pads_after": after, "dilations": dilations}


def _dilations(node: TensorFlowNode, order: AxisOrder) -> Shape:
    # Older files have no such attribute.
    dilations = per_axis(node, "dilations", order, 1)
    node.refuse_unless(min(dilations) >= 1, f"its dilations are {list(dilations)}; each must be at least 1")
    return dilations


def _conv_transpose(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the gradient of a convolution; operands are the result's size, filters [*kernel, O, I], input."""
    order = axis_order(node, 2)
    _check_filters(node, order)
    channels, depth = order.batch_and_channels(node.shape(2))[1], node.shape(1)[-1]
    node.refuse_unless(depth == channels, f"its filters read {depth} channels of {channels}")
    weights = _transposed_filters(node, order)
    x = channels_last(node, node.input(2), order)
    return done_in_order(node, "ConvTranspose", [x, weights], _transposed_attrs(node, order), order)


def _depthwise_transpose(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the gradient of a depthwise convolution; its filters are [*kernel, O, I / O]."""
    order = axis_order(node, 2)
    _check_filters(node, order)
    channels, (results, multiplier) = order.batch_and_channels(node.shape(2))[1], node.shape(1)[-2:]
    node.refuse_unless(
        results * multiplier == channels, f"its filters read {results * multiplier} channels of {channels}"
    )
    weights = _transposed_filters(node, order)
    attrs = {**_transposed_attrs(node, order), "group": results}
    x = channels_last(node, node.input(2), order)
    return done_in_order(node, "ConvTranspose", [x, weights], attrs, order)


def _transposed_filters(node: TensorFlowNode, order: AxisOrder) -> str:
    """Return the filters [*kernel, O, I] as [O, *kernel, I]."""
    return node.permute(1, (order.rank - 2, *range(order.rank - 2), order.rank - 1))


def _transposed_attrs(node: TensorFlowNode, order: AxisOrder) -> dict[str, Any]:
    """Return strides, dilations and paddings of windows over the result, whose size is operand 0.

    Several sizes of a result have the same number of windows, which is why TensorFlow states the size; the IR
    states how much larger than the smallest of them it is (`output_padding`).
    """
    stated, windows = node.ints(0, "output size"), order.spatial(node.shape(2))
    # Version 2 allows a size of the spatial axes alone.
    size = order.spatial(stated) if len(stated) == order.rank else stated
    node.refuse_unless(len(size) == len(windows), f"its output size is {list(stated)} for {order.rank} axes")
    strides, dilations = per_axis(node, "strides", order), _dilations(node, order)
    extent = reach(node.shape(1)[:-2], dilations)
    before, after = paddings(node, size, extent, strides, order)
    spans = zip(windows, strides, extent, before, after, strict=True)
    min_size = tuple((n - 1) * s + e - b - a for n, s, e, b, a in spans)
    extra = tuple(n - m for n, m in zip(size, min_size, strict=True))
    fits = all(0 <= e < s for e, s in zip(extra, strides, strict=True))
    node.refuse_unless(
        fits, f"it makes an output of {list(size)} from {list(windows)} with strides {list(strides)}"
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
        "Conv2DBackpropInput": _conv_transpose,
        "Conv3D": convolution,
        "Conv3DBackpropInputV2": _conv_transpose,
        "DepthwiseConv2dNative": depthwise,
        "DepthwiseConv2dNativeBackpropInput": _depthwise_transpose,
    }
)
