"""Layers that slide filters over the spatial axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.decompositions import same_paddings
from mace_core.ir import Array, Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.activation import activate, activated


def windows(node: KerasNode, spatial: Shape, kernel: Shape) -> dict[str, Any]:
    """Strides, dilations and paddings of a layer's windows over an image of this size."""
    rank, padding = len(spatial), node.get("padding", "valid")
    strides, dilations = node.integers("strides", rank, 1), node.integers("dilation_rate", rank, 1)
    node.refuse_unless(
        min((*strides, *dilations)) > 0, f"strides {list(strides)}, dilations {list(dilations)}"
    )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    before: Shape = (0,) * rank
    after: Shape = (0,) * rank
    if padding == "same":
        before, after = same_paddings(spatial, reach, strides)
    elif padding == "causal":
        before = tuple(r - 1 for r in reach)
    else:
        node.refuse_unless(padding == "valid", f"padding {padding!r}")
    return {"strides": strides, "dilations": dilations, "pads_before": before, "pads_after": after}


def _finished(node: KerasNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> Sequence[str]:
    """The layer's result: the convolution, then its activation, in the layer's order of axes."""
    if not node.is_channels_first:
        return activated(node, op, inputs, attrs)
    if node.get("activation", "linear") == "linear":
        return node.done_in_own_order(op, inputs, attrs)
    made = node.emit(op, inputs, attrs)
    rank = len(node.shape(made))
    turned = node.emit(
        "Transpose", [made], {"perm": (0, rank - 1, *range(1, rank - 1))}, tag="channels-first"
    )
    return activate(node, turned, node.get("activation", "linear"))


def _bias(node: KerasNode) -> list[str]:
    return [node.weight("bias")] if node.has("bias") else []


def _filters(node: KerasNode, name: str, rank: int) -> Array:
    filters = node.array(name)
    node.refuse_unless(
        filters.ndim == rank and filters.size > 0, f"its {name} has shape {list(filters.shape)}"
    )
    return filters


def _laid_out(node: KerasNode, name: str, filters: Array) -> str:
    """Filters in the order of the IR, once for all calls of the layer."""
    return node.importer.shared((node.layer.name, name), lambda: np.ascontiguousarray(filters))


def _convolution(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    group = node.integer("groups", 1)
    w = _laid_out(node, "kernel", np.moveaxis(filters, -1, 0))
    attrs = {**windows(node, shape[1:-1], filters.shape[:-2]), "group": group}
    return _finished(node, "Conv", [x, w, *_bias(node)], attrs)


def _each_channel(node: KerasNode, filters: Array) -> Array:
    """Filters [*k, C, M] of each channel by itself as [C * M, *k, 1]."""
    channels, each = filters.shape[-2:]
    return np.moveaxis(filters, (-2, -1), (0, 1)).reshape(channels * each, *filters.shape[:-2], 1)


def _depthwise(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    w = _laid_out(node, "kernel", _each_channel(node, filters))
    attrs = {**windows(node, shape[1:-1], filters.shape[:-2]), "group": filters.shape[-2]}
    return _finished(node, "Conv", [x, w, *_bias(node)], attrs)


def _separable(node: KerasNode) -> Sequence[str]:
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters, mixing = (_filters(node, f"{part}wise_kernel", len(shape)) for part in ("depth", "point"))
    w = _laid_out(node, "depthwise_kernel", _each_channel(node, filters))
    attrs = {**windows(node, shape[1:-1], filters.shape[:-2]), "group": filters.shape[-2]}
    middle = node.emit("Conv", [x, w], attrs, tag="depthwise")
    rank = len(shape) - 2
    plain = {
        "strides": (1,) * rank,
        "dilations": (1,) * rank,
        "pads_before": (0,) * rank,
        "pads_after": (0,) * rank,
    }
    return _finished(
        node,
        "Conv",
        [middle, _laid_out(node, "pointwise_kernel", np.moveaxis(mixing, -1, 0)), *_bias(node)],
        plain,
    )


def _transposed(node: KerasNode) -> Sequence[str]:
    """Its result is as large as what a convolution of the same padding would make the input from."""
    x = node.to_channels_last(node.float_input())
    shape = node.shape(x)
    filters = _filters(node, "kernel", len(shape))
    kernel, rank = filters.shape[:-2], len(shape) - 2
    attrs = windows(node, shape[1:-1], kernel)
    given = node.get("output_padding")
    extra = node.integers("output_padding", rank) if given is not None else None
    same = node.get("padding", "valid") == "same"
    pads, more = [], []
    for i in range(rank):
        stride, reach = attrs["strides"][i], (kernel[i] - 1) * attrs["dilations"][i] + 1
        whole = (shape[1 + i] - 1) * stride + reach
        if same:
            out = (
                shape[1 + i] * stride if extra is None else (shape[1 + i] - 1) * stride + reach % 2 + extra[i]
            )
        else:
            out = whole + (max(stride - reach, 0) if extra is None else extra[i])
        cut = max(whole - out, 0)
        pads.append((cut // 2, cut - cut // 2))
        more.append(max(out - whole, 0))
    attrs |= {
        "pads_before": tuple(p[0] for p in pads),
        "pads_after": tuple(p[1] for p in pads),
        "output_padding": tuple(more),
    }
    w = _laid_out(node, "kernel", np.moveaxis(filters, -2, 0))
    return _finished(node, "ConvTranspose", [x, w, *_bias(node)], attrs)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D"), _convolution
        ),
        **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _depthwise),
        **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), _separable),
        **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _transposed),
    }
)
