"""Operators that read images at positions known at run time, or image by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import SlidingWindow, find_paddings, find_window

GRID_MODES: Mapping[str, str] = MappingProxyType({"bilinear": "linear", "bicubic": "cubic"})
"""Modes of GridSample before operator set 20 -> what they are called since."""


def _grid_sample(node: OnnxNode) -> Sequence[Result]:
    # The defaults are for com.microsoft::GridSample, which has no definition here.
    mode = node.attr_or("mode", "bilinear")
    attrs = {
        "mode": GRID_MODES.get(mode, mode),
        "padding": node.attr_or("padding_mode", "zeros"),
        "align_corners": bool(node.attr("align_corners")),
    }
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("GridSample", [x, node.input(1)], attrs))


def _affine_grid(node: OnnxNode) -> Sequence[Result]:
    """Express AffineGrid by a product of the matrices and the constant positions of all elements."""
    size = node.ints(1, "size")
    rank = len(size) - 2
    node.refuse_unless(rank in (2, 3), f"size {list(size)}; export the model with images or volumes")
    node.refuse_unless(min(size) > 0, f"size {list(size)} has an empty axis")
    matrices = (size[0], rank, rank + 1)
    node.refuse_unless(node.shape(0) == matrices, f"matrices {list(node.shape(0))}, not {list(matrices)}")
    align_corners = bool(node.attr("align_corners"))
    axes = [_grid_positions(length, align_corners) for length in size[2:]]
    # Positions are in the order x, y, z, the reverse of the axes; a last 1 adds the translation.
    columns = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(size[2:])]
    positions = np.stack(columns, axis=-1).reshape(1, -1, rank + 1)
    dtype = node.dtype(0)
    constant = node.add_constant(positions.astype(dtype.numpy), dtype, tag="positions")
    matrix = node.permute(0, (0, 2, 1))
    moved = node.emit("MatMul", [constant, matrix], {}, tag="moved")
    return node.done("Reshape", [moved], {"shape": (size[0], *size[2:], rank)})


def _grid_positions(length: int, align_corners: bool) -> Array:
    """Return the coordinates between -1 and 1 of the elements along an axis."""
    if not align_corners:
        return (2 * np.arange(length) + 1) / length - 1
    # The formula of ONNX divides 0 by 0 for one element. ONNX Runtime puts it at the upper corner.
    return np.linspace(-1, 1, length) if length > 1 else np.ones(1)


def _roi_align(node: OnnxNode) -> Sequence[Result]:
    # RoiAlign: before operator set 16 there is no half-pixel shift, later it is the default.
    has_half_pixel = node.opset >= 16 and node.attr("coordinate_transformation_mode") == "half_pixel"
    attrs = {
        "size": (node.attr("output_height"), node.attr("output_width")),
        "scale": node.attr("spatial_scale"),
        "samples": node.attr("sampling_ratio"),
        "mode": node.attr("mode"),
        "half_pixel": has_half_pixel,
    }
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("RoiAlign", [x, node.input(1), node.input(2)], attrs))


def _max_roi_pool(node: OnnxNode) -> Sequence[Result]:
    rois, count = node.input(1), node.shape(1)[0]

    def columns(first: int, size: int, tag: str) -> str:
        cut = {"starts": (0, first), "sizes": (count, size), "steps": (1, 1)}
        return node.emit("Slice", [rois], cut, tag=tag)

    # MaxRoiPool: a region is (number of the image, x1, y1, x2, y2), all floats; the IR has the numbers apart.
    flat = node.emit("Reshape", [columns(0, 1, "numbers")], {"shape": (count,)}, tag="flat")
    images = node.emit("Cast", [flat], {"to": DType.I32.value}, tag="images")
    attrs = {"size": tuple(node.attr("pooled_shape")), "scale": node.attr("spatial_scale")}
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("RoiMaxPool", [x, columns(1, 4, "corners"), images], attrs))


def _deform_conv(node: OnnxNode) -> Sequence[Result]:
    """Express DeformConv by the elements under each moved window, and a 1 x 1 convolution of these."""
    kernel = node.shape(1)[2:]
    node.refuse_unless(len(kernel) == 2, f"a kernel of {list(kernel)}; export the model with images")
    group = node.attr("group")
    window = find_window(node, kernel)
    before, after = find_paddings(node, window)
    attrs = {
        "kernel": kernel,
        "pads_before": before,
        "pads_after": after,
        **window.steps(),
        "groups": node.attr("offset_group"),
    }
    # Inputs are x, w, offset, bias, mask.
    inputs = [node.channels_last(node.input(i)) for i in (0, 2, 4) if node.has(i)]
    patches = node.emit("DeformIm2Col", inputs, attrs, tag="patches")
    grouped = _group_channels(node, patches, prod(kernel), group)
    weights = _flat_weights(node, (node.shape(1)[0], 1, 1, prod(node.shape(1)[1:])))
    bias = [node.input(3)] if node.has(3) else []
    no_steps: dict[str, object] = {
        "strides": (1, 1),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    return node.channels_first(node.emit("Conv", [grouped, weights, *bias], {**no_steps, "group": group}))


def _group_channels(node: OnnxNode, patches: str, taps: int, group: int) -> str:
    """Return patches [N, h, w, taps * C] with the channels of each group together, as Conv reads them."""
    if group == 1:
        return patches
    *outer, depth = node.builder.shape(patches)
    split = (*outer, taps, group, depth // taps // group)
    parts = node.emit("Reshape", [patches], {"shape": split}, tag="groups")
    permuted = node.emit("Transpose", [parts], {"perm": (0, 1, 2, 4, 3, 5)}, tag="turned")
    return node.emit("Reshape", [permuted], {"shape": (*outer, depth)}, tag="grouped")


def _flat_weights(node: OnnxNode, shape: tuple[int, ...]) -> str:
    """Return weights [O, I, *kernel] as [O, 1, 1, *kernel * I]."""

    def flatten(weights: Array) -> Array:
        return weights.transpose(0, 2, 3, 1).reshape(shape)

    if node.is_constant(1):
        return node.derive_constant(1, "flat", flatten)
    return node.emit("Reshape", [node.permute(1, (0, 2, 3, 1))], {"shape": shape}, tag="flat")


def _col2im(node: OnnxNode) -> Sequence[Result]:
    size, block = node.ints(1, "image shape"), node.ints(2, "block shape")
    ones = (1,) * len(size)
    strides, dilations = node.attr("strides") or ones, node.attr("dilations") or ones
    window = SlidingWindow(size, block, tuple(strides), tuple(dilations))
    before, after = find_paddings(node, window)
    # Col2Im: columns are [N, C * block, windows], the windows those of a convolution over the image.
    batch, depth, _ = node.shape(0)
    spans = zip(size, before, after, window.reach, window.strides, strict=True)
    count = tuple((n + a + b - r) // s + 1 for n, a, b, r, s in spans)
    channels = depth // prod(block)
    split = (batch, channels, prod(block), *count)
    parts = node.emit("Reshape", [node.input(0)], {"shape": split}, tag="apart")
    perm = (0, *range(3, 3 + len(count)), 2, 1)
    permuted = node.emit("Transpose", [parts], {"perm": perm}, tag="turned")
    columns = node.emit("Reshape", [permuted], {"shape": (batch, *count, depth)}, tag="columns")
    attrs = {"size": size, "kernel": block, **window.steps(), "pads_before": before, "pads_after": after}
    return node.channels_first(node.emit("Col2Im", [columns], attrs))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "AffineGrid": _affine_grid,
        "Col2Im": _col2im,
        "DeformConv": _deform_conv,
        "GridSample": _grid_sample,
        "MaxRoiPool": _max_roi_pool,
        "RoiAlign": _roi_align,
        "com.microsoft::GridSample": _grid_sample,
    }
)
