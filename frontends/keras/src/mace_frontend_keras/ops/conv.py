"""Convolutions. The filters of Keras are [*k, I, O], those of the IR [O, *k, I]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.decompositions import same_paddings
from mace_core.importer import to_first
from mace_core.ir import Array, Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import activate, done_with_activation


def window_attributes(node: KerasNode, spatial: Shape, kernel: Shape) -> dict[str, Any]:
    """Return strides, dilations and paddings of a layer's windows over an image of this size."""
    rank, padding = len(spatial), node.get("padding", "valid")
    strides, dilations = node.integers("strides", rank, 1), node.integers("dilation_rate", rank, 1)
    node.require_consistent(
        min((*strides, *dilations)) > 0, f"it has strides {list(strides)}, dilations {list(dilations)}"
    )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before: Shape = (0,) * rank
    after: Shape = (0,) * rank
    if padding == "same":
        before, after = same_paddings(spatial, reach, strides)
    elif padding == "causal":
        # A result must not depend on later steps: all padding lies before the first.
        before = tuple(r - 1 for r in reach)
    else:
        node.require_supported(padding == "valid", f"it has padding {padding!r}")
    return {"strides": strides, "dilations": dilations, "pads_before": before, "pads_after": after}


def _done_conv(node: KerasNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> Sequence[str]:
    """Add the layer's result: the convolution, then its activation, in the layer's order of axes."""
    if not node.is_channels_first:
        return done_with_activation(node, op, inputs, attrs)
    if node.get("activation", "linear") == "linear":
        return node.done_in_layer_order(op, inputs, attrs)
    # The activation comes behind the transposition: a softmax works on the layer's last axis, whatever lies
    # there.
    convolved = node.emit(op, inputs, attrs)
    perm = to_first(len(node.shape(convolved)))
    transposed = node.emit("Transpose", [convolved], {"perm": perm}, tag="channels-first")
    return activate(node, transposed, node.get("activation", "linear"))


def _bias(node: KerasNode) -> list[str]:
    return [node.weight("bias")] if node.has("bias") else []


def _filters(node: KerasNode, name: str, rank: int) -> Array:
    filters = node.array(name)
    node.require_consistent(
        filters.ndim == rank and filters.size > 0, f"its {name} has shape {list(filters.shape)}"
    )
    return filters


def _add_filters(node: KerasNode, name: str, filters: Array) -> str:
    """Return filters in the order of the IR, added once for all calls of the layer."""
    return node.importer.add_shared((node.layer.name, name), lambda: np.ascontiguousarray(filters))


def _convolution(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    group = node.integer("groups", 1)
    w = _add_filters(node, "kernel", np.moveaxis(filters, -1, 0))
    attrs = {**window_attributes(node, shape[1:-1], filters.shape[:-2]), "group": group}
    return _done_conv(node, "Conv", [x, w, *_bias(node)], attrs)


def _each_channel(node: KerasNode, filters: Array) -> Array:
    """Return filters [*k, C, M] of each channel by itself as [C * M, *k, 1]."""
    channels, each = filters.shape[-2:]
    return np.moveaxis(filters, (-2, -1), (0, 1)).reshape(channels * each, *filters.shape[:-2], 1)


def _depthwise(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    w = _add_filters(node, "kernel", _each_channel(node, filters))
    attrs = {**window_attributes(node, shape[1:-1], filters.shape[:-2]), "group": filters.shape[-2]}
    return _done_conv(node, "Conv", [x, w, *_bias(node)], attrs)


def _separable(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters, mixing = (_filters(node, f"{part}wise_kernel", len(shape)) for part in ("depth", "point"))
    w = _add_filters(node, "depthwise_kernel", _each_channel(node, filters))
    attrs = {**window_attributes(node, shape[1:-1], filters.shape[:-2]), "group": filters.shape[-2]}
    middle = node.emit("Conv", [x, w], attrs, tag="depthwise")
    # Strides and dilations belong to the first of the two; the bias and the activation to the second.
    rank = len(shape) - 2
    ones, zeros = (1,) * rank, (0,) * rank
    plain = {"strides": ones, "dilations": ones, "pads_before": zeros, "pads_after": zeros}
    pointwise = _add_filters(node, "pointwise_kernel", np.moveaxis(mixing, -1, 0))
    return _done_conv(node, "Conv", [middle, pointwise, *_bias(node)], plain)


def _conv_transpose(node: KerasNode) -> Sequence[str]:
    """Add a transposed convolution, whose filters are [*k, O, I].

    Its result is as large as the input of a convolution of the same padding that would make this input.
    """
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    kernel, rank = filters.shape[:-2], len(shape) - 2
    attrs = window_attributes(node, shape[1:-1], kernel)
    padding = node.integers("output_padding", rank) if node.get("output_padding") is not None else None
    pads, more = [], []
    for i in range(rank):
        stride, reach = attrs["strides"][i], (kernel[i] - 1) * attrs["dilations"][i] + 1
        full = (shape[1 + i] - 1) * stride + reach
        size = _transposed_size(node, shape[1 + i], (stride, reach), None if padding is None else padding[i])
        # The odd element of what is cut lies at the end, as TensorFlow pads.
        cut = max(full - size, 0)
        pads.append((cut // 2, cut - cut // 2))
        more.append(max(size - full, 0))
    attrs |= {
        "pads_before": tuple(before for before, _ in pads),
        "pads_after": tuple(after for _, after in pads),
        "output_padding": tuple(more),
    }
    w = _add_filters(node, "kernel", np.moveaxis(filters, -2, 0))
    return _done_conv(node, "ConvTranspose", [x, w, *_bias(node)], attrs)


def _transposed_size(node: KerasNode, size: int, window: tuple[int, int], padding: int | None) -> int:
    """Return the size of an axis of a transposed convolution.

    window: stride, and how far the dilated kernel extends.  padding: the output padding, None if it is not
    stated.
    """
    # The formulas of keras/src/backend/common/backend_utils.py, compute_conv_transpose_output_shape.
    stride, reach = window
    if node.get("padding", "valid") == "same":
        return size * stride if padding is None else (size - 1) * stride + reach % 2 + padding
    full = (size - 1) * stride + reach
    return full + (max(stride - reach, 0) if padding is None else padding)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D"), _convolution
        ),
        **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _depthwise),
        **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _separable),
        **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _conv_transpose),
    }
)
