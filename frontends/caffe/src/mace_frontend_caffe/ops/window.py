"""Layers that slide a window over the spatial axes, and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import Node
from mace_frontend_caffe.ops import Handler


def spread(values: Sequence[int], rank: int, default: int, pair: tuple[int, int]) -> Shape:
    """A parameter for each spatial axis: `pair` where height and width are given apart, one for all, or one each."""
    if any(pair) and rank == 2:
        return pair
    given = tuple(int(v) for v in values)
    return given if len(given) == rank else (given[0] if given else default,) * rank


def _geometry(node: Node, p: Any) -> dict[str, Any]:
    rank = len(node.shape()) - 2
    pads = spread(p.pad, rank, 0, (p.pad_h, p.pad_w))
    strides = spread(p.stride, rank, 1, (p.stride_h, p.stride_w))
    node.refuse_unless(p.axis == 1 and min(strides, default=0) > 0, f"axis {p.axis}, strides {strides}")
    return {"strides": strides, "dilations": spread(p.dilation, rank, 1, (0, 0)), "pads_before": pads, "pads_after": pads}


def _filters(node: Node, p: Any, count: tuple[int, int]) -> Array:
    """The layer's weights in the shape that its parameters give: [*count, *kernel]."""
    rank = len(node.shape()) - 2
    kernel = spread(p.kernel_size, rank, 1, (p.kernel_h, p.kernel_w))
    weights = node.blob(0, "filters")
    node.refuse_unless(weights.size == prod((*count, *kernel)), f"filters of {list(weights.shape)}, expected {[*count, *kernel]}")
    return weights.reshape(*count, *kernel)


def _bias(node: Node, p: Any) -> list[str]:
    return [node.weight(node.blob(1, "bias").reshape(-1), "bias")] if p.bias_term else []


def _convolution(node: Node) -> Sequence[str]:
    p, channels = node.layer.convolution_param, node.shape()[1]
    group = channels if "epthwise" in node.layer.type else int(p.group)
    node.refuse_unless(group > 0 and channels % group == 0, f"{channels} channels in {group} groups")
    filters = _filters(node, p, (int(p.num_output), channels // group))
    w = node.weight(np.moveaxis(filters, 1, -1), "filters")
    made = node.emit("Conv", [node.channels_last(node.input()), w, *_bias(node, p)], {**_geometry(node, p), "group": group})
    return node.channels_first(made)


def _deconvolution(node: Node) -> Sequence[str]:
    p, channels = node.layer.convolution_param, node.shape()[1]
    group, results = int(p.group), int(p.num_output)
    node.refuse_unless(group > 0 and channels % group == 0 and results % group == 0, f"{channels} channels in {group} groups")
    filters = _filters(node, p, (channels, results // group))
    kernel = filters.shape[2:]
    split = np.moveaxis(filters.reshape(group, channels // group, results // group, *kernel), 1, -1)
    w = node.weight(split.reshape(results, *kernel, channels // group), "filters")
    attrs = {**_geometry(node, p), "group": group, "output_padding": (0,) * len(kernel)}
    return node.channels_first(node.emit("ConvTranspose", [node.channels_last(node.input()), w, *_bias(node, p)], attrs))


def _pooling(node: Node) -> Sequence[str]:
    p, shape = node.layer.pooling_param, node.shape()
    kind = p.DESCRIPTOR.fields_by_name["pool"].enum_type.values_by_number[p.pool].name
    node.refuse_unless(kind in ("MAX", "AVE"), f"{kind} pooling")
    if p.global_pooling:
        return node.done("ReduceMax" if kind == "MAX" else "ReduceMean", [node.input()], {"axes": tuple(range(2, len(shape)))})
    rank = len(shape) - 2
    pads = spread([p.pad], rank, 0, (p.pad_h, p.pad_w))
    attrs = {
        "kernel": spread([p.kernel_size], rank, 1, (p.kernel_h, p.kernel_w)),
        "strides": spread([p.stride or 1], rank, 1, (p.stride_h, p.stride_w)),
        "pads_before": pads,
        "pads_after": pads,
        "dilations": (1,) * rank,
        "ceil": p.round_mode == 0 and bool(p.ceil_mode),
    }
    x = node.channels_last(node.input())
    return node.channels_first(
        node.emit("MaxPool", [x], attrs) if kind == "MAX" else node.emit("AveragePool", [x], {**attrs, "count_pad": True})
    )


def _inner_product(node: Node) -> Sequence[str]:
    p, shape = node.layer.inner_product_param, node.shape()
    axis = node.axis(p.axis, len(shape))
    depth, results = prod(shape[axis:]), int(p.num_output)
    weights = node.blob(0, "weights")
    node.refuse_unless(weights.size == depth * results, f"weights of {list(weights.shape)} for {depth} by {results}")
    matrix = weights.reshape(depth, results) if p.transpose else weights.reshape(results, depth).T
    x = node.emit("Reshape", [node.input()], {"shape": (*shape[:axis], depth)}, tag="rows")
    return node.done("MatMul", [x, node.weight(matrix, "weights"), *_bias(node, p)])


def _embed(node: Node) -> Sequence[str]:
    p = node.layer.embed_param
    rows = node.weight(node.blob(0, "rows").reshape(p.input_dim, p.num_output), "rows")
    places = node.emit("Cast", [node.input()], {"to": "i64"}, tag="places")
    if not p.bias_term:
        return node.done("Gather", [rows, places], {"axis": 0})
    return node.done("Add", [node.emit("Gather", [rows, places], {"axis": 0}), node.weight(node.blob(1, "bias"), "bias")])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution"), _convolution),
        "Deconvolution": _deconvolution,
        "Pooling": _pooling,
        "InnerProduct": _inner_product,
        "Embed": _embed,
    }
)
