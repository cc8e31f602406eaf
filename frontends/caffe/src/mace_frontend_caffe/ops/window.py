"""Layers that slide a window over the spatial axes, and products.

Blobs of Caffe are [N, C, *spatial]; spatial ops of the IR read [N, *spatial, C]. Each handler transposes both
ways, and the layout transforms of core remove the pairs of transposes between two layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import to_first
from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import Handler

POOLS = ("MAX", "AVE")
"""The kinds of pooling that a deployed network computes; STOCHASTIC draws random numbers while it trains."""


def by_axis(
    node: CaffeNode, values: Sequence[int], rank: int, default: int, pair: tuple[int, int] = (0, 0)
) -> Shape:
    """Return a parameter of a window for each spatial axis.

    Caffe has three ways to state it (base_conv_layer.cpp): a height and a width in fields of their own
    (`pair`, 0 where the file has none), one number for all axes, or one for each axis.
    """
    if any(pair) and rank == 2:
        return pair
    sizes = tuple(int(value) for value in values)
    node.refuse_unless(
        len(sizes) in (0, 1, rank), f"it has a parameter of {list(sizes)} for {rank} spatial axes"
    )
    if len(sizes) == rank:
        return sizes
    return (sizes[0] if sizes else default,) * rank


def _kernel(node: CaffeNode, parameters: Any, rank: int) -> Shape:
    pair = (parameters.kernel_h, parameters.kernel_w)
    return by_axis(node, parameters.kernel_size, rank, 1, pair)


def _window_attrs(node: CaffeNode, parameters: Any) -> dict[str, Any]:
    """Return the strides, dilations and pads of a convolution, which are the same on both sides."""
    rank = len(node.shape()) - 2
    pads = by_axis(node, parameters.pad, rank, 0, (parameters.pad_h, parameters.pad_w))
    strides = by_axis(node, parameters.stride, rank, 1, (parameters.stride_h, parameters.stride_w))
    node.refuse_unless(min(strides, default=0) > 0, f"its strides are {list(strides)}")
    # With another axis Caffe computes several images as a batch of more axes, which no known network does.
    node.refuse_unless(parameters.axis == 1, f"its channels are axis {parameters.axis}, not 1", CUT_BEFORE)
    return {
        "strides": strides,
        "dilations": by_axis(node, parameters.dilation, rank, 1),
        "pads_before": pads,
        "pads_after": pads,
    }


def _read_filters(node: CaffeNode, parameters: Any, count: tuple[int, int]) -> Array:
    """Return the layer's weights in the shape that its parameters give: [*count, *kernel]."""
    kernel = _kernel(node, parameters, len(node.shape()) - 2)
    return node.shaped_blob(0, "filters", (*count, *kernel))


def _add_bias(node: CaffeNode, parameters: Any) -> list[str]:
    """Return the bias as a list of one tensor; an empty one if the layer has none."""
    if not parameters.bias_term:
        return []
    return [node.add_float(node.shaped_blob(1, "bias", (int(parameters.num_output),)), "bias")]


def _check_groups(node: CaffeNode, group: int) -> None:
    channels, results = node.shape()[1], int(node.layer.convolution_param.num_output)
    fits = group > 0 and channels % group == 0 and results > 0 and results % group == 0
    node.refuse_unless(fits, f"it makes {results} channels of {channels} in {group} groups")


def _convolution(node: CaffeNode) -> Sequence[str]:
    x = node.channels_last(node.input())
    parameters, channels = node.layer.convolution_param, node.shape()[1]
    # Forks spell the depthwise type in two ways, and their layers do not read `group`.
    group = channels if "Depthwise" in node.layer.type else int(parameters.group)
    _check_groups(node, group)
    filters = _read_filters(node, parameters, (int(parameters.num_output), channels // group))
    # Caffe stores filters as [out, in, *kernel], the IR as [out, *kernel, in].
    weights = node.add_float(np.moveaxis(filters, 1, -1), "filters")
    attrs = {**_window_attrs(node, parameters), "group": group}
    return node.channels_first(node.emit("Conv", [x, weights, *_add_bias(node, parameters)], attrs))


def _deconvolution(node: CaffeNode) -> Sequence[str]:
    x = node.channels_last(node.input())
    parameters, channels = node.layer.convolution_param, node.shape()[1]
    group, results = int(parameters.group), int(parameters.num_output)
    _check_groups(node, group)
    # Caffe runs the backward pass of a convolution: its filters are [in, out of a group, *kernel]. The IR
    # stores [out, *kernel, in of a group], so that the groups change from the first axis to the second.
    filters = _read_filters(node, parameters, (channels, results // group))
    kernel = filters.shape[2:]
    grouped = filters.reshape(group, channels // group, results // group, *kernel)
    filters = np.moveaxis(grouped, 1, -1).reshape(results, *kernel, channels // group)
    weights = node.add_float(filters, "filters")
    attrs = {**_window_attrs(node, parameters), "group": group, "output_padding": (0,) * len(kernel)}
    return node.channels_first(node.emit("ConvTranspose", [x, weights, *_add_bias(node, parameters)], attrs))


def _pooling(node: CaffeNode) -> Sequence[str]:
    parameters, shape = node.layer.pooling_param, node.shape()
    kind = node.enum_name(parameters, "pool")
    node.refuse_unless(kind in POOLS, f"{kind} pooling is for training alone", "use MAX or AVE")
    rank = len(shape) - 2
    node.refuse_unless(
        rank > 0, f"its bottom has rank {len(shape)}; it needs a batch, channels and spatial axes"
    )
    has_indices = len(node.layer.top) > 1
    if parameters.global_pooling and not has_indices:
        # A reduction needs no transposes, and says that the whole image is read whatever its size.
        op = "ReduceMax" if kind == "MAX" else "ReduceMean"
        return node.done(op, [node.input()], {"axes": tuple(range(2, len(shape)))})
    pads = by_axis(node, [parameters.pad], rank, 0, (parameters.pad_h, parameters.pad_w))
    kernel = shape[2:] if parameters.global_pooling else _kernel_of_pool(node, rank)
    strides = by_axis(node, [parameters.stride or 1], rank, 1, (parameters.stride_h, parameters.stride_w))
    # Caffe rounds the number of windows up. Its own switch is round_mode (CEIL is 0), that of forks
    # ceil_mode.
    ceil = node.enum_name(parameters, "round_mode") == "CEIL" and bool(parameters.ceil_mode)
    attrs = pool_attrs(node, (kernel, strides, pads), ceil=ceil)
    x = node.channels_last(node.input())
    if not has_indices:
        return node.channels_first(add_pool(node, kind, x, attrs))
    node.refuse_unless(kind == "MAX", "it has two tops, but only MAX pooling has indices for the second one")
    values, indices = node.emit_all("MaxPoolIndices", [x], attrs, count=2)
    # All blobs of Caffe are floats, indices among them.
    numbers = node.emit("Cast", [indices], {"to": "f32"}, tag="numbers")
    perm = {"perm": to_first(len(node.builder.shape(values)))}
    return [node.done_top(i, "Transpose", [top], perm) for i, top in enumerate((values, numbers))]


def _kernel_of_pool(node: CaffeNode, rank: int) -> Shape:
    """Return the kernel of a pool; its fields have the names of a convolution's, but one value each."""
    parameters = node.layer.pooling_param
    pair = (parameters.kernel_h, parameters.kernel_w)
    return by_axis(node, [parameters.kernel_size], rank, 1, pair)


def pool_attrs(node: CaffeNode, windows: tuple[Shape, Shape, Shape], *, ceil: bool) -> dict[str, Any]:
    """Return a pool's attributes; RefusedError for windows that the IR cannot represent.

    windows: kernel, strides and the padding on both sides.
    """
    kernel, strides, pads = windows
    spatial = node.shape()[2:]
    text = f"it has windows of {list(kernel)} with strides of {list(strides)} on {list(spatial)}"
    fits = all(
        k > 0 and stride > 0 and k <= n + 2 * pad
        for n, k, stride, pad in zip(spatial, kernel, strides, pads, strict=True)
    )
    node.refuse_unless(fits, f"{text} with a padding of {list(pads)}")
    # Rounding up may put the last window behind the end of the image. With a padding on any axis
    # pooling_layer.cpp removes such a window, as the IR does; without any it keeps a window that holds
    # nothing.
    if ceil and not any(pads):
        is_outside = any(
            -(-(n - k) // stride) * stride >= n for n, k, stride in zip(spatial, kernel, strides, strict=True)
        )
        node.refuse_unless(not is_outside, f"{text}, one of them beyond the end")
    return {
        "kernel": kernel,
        "strides": strides,
        "pads_before": pads,
        "pads_after": pads,
        "dilations": (1,) * len(kernel),
        "ceil": ceil,
    }


def add_pool(node: CaffeNode, kind: str, x: str, attrs: dict[str, Any]) -> str:
    """Add a pool of a tensor [N, *spatial, C]; kind: MAX or AVE."""
    if kind == "MAX":
        return node.emit("MaxPool", [x], attrs)
    # pooling_layer.cpp divides by the window's size with its padding, though not by what rounding up adds
    # behind it.
    return node.emit("AveragePool", [x], {**attrs, "count_pad": True})


def _spp(node: CaffeNode) -> Sequence[str]:
    """Add pools of 1, 2, 4 ... bins a side, flat and one after another.

    K. He et al., "Spatial Pyramid Pooling in Deep Convolutional Networks for Visual Recognition", 2014.
    """
    parameters, shape = node.layer.spp_param, node.shape()
    kind, height = node.enum_name(parameters, "pool"), int(parameters.pyramid_height)
    node.refuse_unless(kind in POOLS, f"{kind} pooling is for training alone", "use MAX or AVE")
    node.refuse_unless(len(shape) == 4, f"its bottom has rank {len(shape)}; it needs 4")
    # A level of more bins than pixels would have windows of padding alone.
    max_height = min(shape[2:]).bit_length()
    node.refuse_unless(
        0 < height <= max_height, f"it has a pyramid of {height} levels on an image of {list(shape[2:])}"
    )
    x = node.channels_last(node.input())
    rows = []
    for level in range(height):
        # As spp_layer.cpp has it: windows as large as the bins rounded up, and half of what they are too
        # large, rounded up, as padding on both sides.
        kernel = tuple(-(-n >> level) for n in shape[2:])
        pads = tuple(((k << level) - n + 1) // 2 for k, n in zip(kernel, shape[2:], strict=True))
        bins = add_pool(node, kind, x, pool_attrs(node, (kernel, kernel, pads), ceil=True))
        bins = node.emit("Transpose", [bins], {"perm": (0, 3, 1, 2)})
        row_shape = (shape[0], prod(node.builder.shape(bins)[1:]))
        rows.append(node.emit("Reshape", [bins], {"shape": row_shape}))
    return node.done("Concat", rows, {"axis": 1})


def _im2col(node: CaffeNode) -> Sequence[str]:
    """Add what each window sees as one column: [N, C * kernel, *out], channels outside as in Caffe."""
    parameters, shape = node.layer.convolution_param, node.shape()
    kernel = _kernel(node, parameters, len(shape) - 2)
    attrs = {**_window_attrs(node, parameters), "kernel": kernel}
    windows = node.emit("Im2Col", [node.channels_last(node.input())], attrs)
    out = node.builder.shape(windows)[1:-1]
    # The op of the IR has the channels inside, as its images do.
    windows_shape = (shape[0], prod(out), prod(kernel), shape[1])
    windows = node.emit("Reshape", [windows], {"shape": windows_shape}, tag="windows")
    columns = node.emit("Transpose", [windows], {"perm": (0, 3, 2, 1)}, tag="columns")
    return node.done("Reshape", [columns], {"shape": (shape[0], shape[1] * prod(kernel), *out)})


def _inner_product(node: CaffeNode) -> Sequence[str]:
    parameters, shape = node.layer.inner_product_param, node.shape()
    axis = node.axis(parameters.axis, len(shape))
    depth, results = prod(shape[axis:]), int(parameters.num_output)
    node.refuse_unless(results > 0, "its num_output is 0")
    # Caffe stores a row for each output; `transpose` says that the file has a row for each input, as MatMul
    # wants it.
    if parameters.transpose:
        matrix = node.shaped_blob(0, "weights", (depth, results))
    else:
        matrix = node.shaped_blob(0, "weights", (results, depth)).T
    x = node.emit("Reshape", [node.input()], {"shape": (*shape[:axis], depth)}, tag="rows")
    return node.done("MatMul", [x, node.add_float(matrix, "weights"), *_add_bias(node, parameters)])


def _embed(node: CaffeNode) -> Sequence[str]:
    parameters = node.layer.embed_param
    blob = node.shaped_blob(0, "rows", (int(parameters.input_dim), int(parameters.num_output)))
    rows = node.add_float(blob, "rows")
    # All blobs of Caffe are floats, indices among them.
    indices = node.emit("Cast", [node.input()], {"to": "i64"}, tag="places")
    if not parameters.bias_term:
        return node.done("Gather", [rows, indices], {"axis": 0})
    return node.done("Add", [node.emit("Gather", [rows, indices], {"axis": 0}), *_add_bias(node, parameters)])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution"), _convolution),
        "Deconvolution": _deconvolution,
        "Pooling": _pooling,
        "SPP": _spp,
        "Im2col": _im2col,
        "InnerProduct": _inner_product,
        "Embed": _embed,
    }
)
