"""Layers that slide a window over the spatial axes, and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import to_first
from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler


def spread(values: Sequence[int], rank: int, default: int, pair: tuple[int, int]) -> Shape:
    """A parameter for each spatial axis: `pair` where height and width are given apart, one for all, or one each."""
    if any(pair) and rank == 2:
        return pair
    given = tuple(int(v) for v in values)
    return given if len(given) == rank else (given[0] if given else default,) * rank


def _geometry(node: CaffeNode, p: Any) -> dict[str, Any]:
    rank = len(node.shape()) - 2
    pads = spread(p.pad, rank, 0, (p.pad_h, p.pad_w))
    strides = spread(p.stride, rank, 1, (p.stride_h, p.stride_w))
    node.refuse_unless(p.axis == 1 and min(strides, default=0) > 0, f"axis {p.axis}, strides {strides}")
    return {
        "strides": strides,
        "dilations": spread(p.dilation, rank, 1, (0, 0)),
        "pads_before": pads,
        "pads_after": pads,
    }


def _filters(node: CaffeNode, p: Any, count: tuple[int, int]) -> Array:
    """The layer's weights in the shape that its parameters give: [*count, *kernel]."""
    rank = len(node.shape()) - 2
    return node.fitted(0, "filters", (*count, *spread(p.kernel_size, rank, 1, (p.kernel_h, p.kernel_w))))


def _bias(node: CaffeNode, p: Any) -> list[str]:
    return [node.add_float(node.fitted(1, "bias", (int(p.num_output),)), "bias")] if p.bias_term else []


def _groups(node: CaffeNode, group: int) -> int:
    channels, results = node.shape()[1], int(node.layer.convolution_param.num_output)
    fits = group > 0 and channels % group == 0 and results > 0 and results % group == 0
    node.refuse_unless(fits, f"{channels} channels to {results} in {group} groups")
    return group


def _convolution(node: CaffeNode) -> Sequence[str]:
    x = node.channels_last(node.input())
    p, channels = node.layer.convolution_param, node.shape()[1]
    group = _groups(node, channels if "epthwise" in node.layer.type else int(p.group))
    filters = _filters(node, p, (int(p.num_output), channels // group))
    w = node.add_float(np.moveaxis(filters, 1, -1), "filters")
    return node.channels_first(
        node.emit("Conv", [x, w, *_bias(node, p)], {**_geometry(node, p), "group": group})
    )


def _deconvolution(node: CaffeNode) -> Sequence[str]:
    x = node.channels_last(node.input())
    p, channels = node.layer.convolution_param, node.shape()[1]
    group, results = _groups(node, int(p.group)), int(p.num_output)
    filters = _filters(node, p, (channels, results // group))
    kernel = filters.shape[2:]
    split = np.moveaxis(filters.reshape(group, channels // group, results // group, *kernel), 1, -1)
    w = node.add_float(split.reshape(results, *kernel, channels // group), "filters")
    attrs = {**_geometry(node, p), "group": group, "output_padding": (0,) * len(kernel)}
    return node.channels_first(node.emit("ConvTranspose", [x, w, *_bias(node, p)], attrs))


def _pooling(node: CaffeNode) -> Sequence[str]:
    p, shape = node.layer.pooling_param, node.shape()
    kind = node.choice(p, "pool")
    node.refuse_unless(kind in ("MAX", "AVE"), f"{kind} pooling; a trained network pools by MAX or AVE")
    rank = len(shape) - 2
    node.refuse_unless(
        rank > 0, f"its bottom has rank {len(shape)}; it needs a batch, channels and spatial axes"
    )
    places = len(node.layer.top) > 1
    if p.global_pooling and not places:
        return node.done(
            "ReduceMax" if kind == "MAX" else "ReduceMean",
            [node.input()],
            {"axes": tuple(range(2, len(shape)))},
        )
    pads = spread([p.pad], rank, 0, (p.pad_h, p.pad_w))
    kernel = shape[2:] if p.global_pooling else spread([p.kernel_size], rank, 1, (p.kernel_h, p.kernel_w))
    strides = spread([p.stride or 1], rank, 1, (p.stride_h, p.stride_w))
    attrs = pool_attrs(node, (kernel, strides, pads), ceil=p.round_mode == 0 and bool(p.ceil_mode))
    x = node.channels_last(node.input())
    if not places:
        return node.channels_first(pooled(node, kind, x, attrs))
    node.refuse_unless(kind == "MAX", "two tops, and only MAX pooling has places of maxima to tell")
    values, indices = node.emit_all("MaxPoolIndices", [x], attrs, count=2)
    numbers = node.emit("Cast", [indices], {"to": "f32"}, tag="numbers")
    perm = {"perm": to_first(len(node.builder.shape(values)))}
    return [node.done_top(i, "Transpose", [made], perm) for i, made in enumerate((values, numbers))]


def pool_attrs(node: CaffeNode, windows: tuple[Shape, Shape, Shape], *, ceil: bool) -> dict[str, Any]:
    """A pool's attributes; windows: kernel, strides and padding on both sides.

    Caffe leaves out a last window that has nothing but padding, if there is padding; without any such window
    is nothing at all.
    """
    kernel, strides, pads = windows
    spatial = node.shape()[2:]
    fits = all(
        k > 0 and st > 0 and k <= n + 2 * pad
        for n, k, st, pad in zip(spatial, kernel, strides, pads, strict=True)
    )
    node.refuse_unless(
        fits, f"windows of {list(kernel)}, {list(strides)} apart, on {list(spatial)} padded by {list(pads)}"
    )
    outside = ceil and any(
        -(-(n - k) // st) * st >= n
        for n, k, st in zip(spatial, kernel, strides, strict=True)
        if not any(pads)
    )
    node.refuse_unless(
        not outside,
        f"windows of {list(kernel)}, {list(strides)} apart, one of them beyond the end of {list(spatial)}",
    )
    return {
        "kernel": kernel,
        "strides": strides,
        "pads_before": pads,
        "pads_after": pads,
        "dilations": (1,) * len(kernel),
        "ceil": ceil,
    }


def pooled(node: CaffeNode, kind: str, x: str, attrs: dict[str, Any]) -> str:
    """A tensor [N, *spatial, C] pooled; means count the padding."""
    return (
        node.emit("MaxPool", [x], attrs)
        if kind == "MAX"
        else node.emit("AveragePool", [x], {**attrs, "count_pad": True})
    )


def _pyramid(node: CaffeNode) -> Sequence[str]:
    """Pools of 1, 2, 4, .

    Bins a side, one after another (K. He et al., "Spatial Pyramid Pooling", 2014).
    """
    p, shape = node.layer.spp_param, node.shape()
    kind, height = node.choice(p, "pool"), int(p.pyramid_height)
    node.refuse_unless(
        kind in ("MAX", "AVE") and len(shape) == 4, f"{kind} pooling of a blob of rank {len(shape)}"
    )
    most = min(shape[2:]).bit_length()
    node.refuse_unless(0 < height <= most, f"a pyramid of {height} levels on {list(shape[2:])}")
    x = node.channels_last(node.input())
    rows = []
    for level in range(height):
        kernel = tuple(-(-n >> level) for n in shape[2:])
        pads = tuple(((k << level) - n + 1) // 2 for k, n in zip(kernel, shape[2:], strict=True))
        made = pooled(node, kind, x, pool_attrs(node, (kernel, kernel, pads), ceil=True))
        turned = node.emit("Transpose", [made], {"perm": (0, 3, 1, 2)})
        rows.append(
            node.emit("Reshape", [turned], {"shape": (shape[0], prod(node.builder.shape(turned)[1:]))})
        )
    return node.done("Concat", rows, {"axis": 1})


def _im2col(node: CaffeNode) -> Sequence[str]:
    """What each window sees as one column: [N, C * kernel, *out]."""
    p, shape = node.layer.convolution_param, node.shape()
    rank = len(shape) - 2
    kernel = spread(p.kernel_size, rank, 1, (p.kernel_h, p.kernel_w))
    made = node.emit("Im2Col", [node.channels_last(node.input())], {**_geometry(node, p), "kernel": kernel})
    out = node.builder.shape(made)[1:-1]
    apart = node.emit(
        "Reshape", [made], {"shape": (shape[0], prod(out), prod(kernel), shape[1])}, tag="windows"
    )
    turned = node.emit("Transpose", [apart], {"perm": (0, 3, 2, 1)}, tag="columns")
    return node.done("Reshape", [turned], {"shape": (shape[0], shape[1] * prod(kernel), *out)})


def _inner_product(node: CaffeNode) -> Sequence[str]:
    p, shape = node.layer.inner_product_param, node.shape()
    axis = node.axis(p.axis, len(shape))
    depth, results = prod(shape[axis:]), int(p.num_output)
    node.refuse_unless(results > 0, "num_output is 0")
    matrix = (
        node.fitted(0, "weights", (depth, results))
        if p.transpose
        else node.fitted(0, "weights", (results, depth)).T
    )
    x = node.emit("Reshape", [node.input()], {"shape": (*shape[:axis], depth)}, tag="rows")
    return node.done("MatMul", [x, node.add_float(matrix, "weights"), *_bias(node, p)])


def _embed(node: CaffeNode) -> Sequence[str]:
    p = node.layer.embed_param
    rows = node.add_float(node.fitted(0, "rows", (int(p.input_dim), int(p.num_output))), "rows")
    places = node.emit("Cast", [node.input()], {"to": "i64"}, tag="places")
    if not p.bias_term:
        return node.done("Gather", [rows, places], {"axis": 0})
    return node.done("Add", [node.emit("Gather", [rows, places], {"axis": 0}), *_bias(node, p)])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution"), _convolution),
        "Deconvolution": _deconvolution,
        "Pooling": _pooling,
        "SPP": _pyramid,
        "Im2col": _im2col,
        "InnerProduct": _inner_product,
        "Embed": _embed,
    }
)
