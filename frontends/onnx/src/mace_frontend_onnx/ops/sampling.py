"""Operators that read images at places known at run time, or image by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.window import Window, paddings, window

GRID_MODES: Mapping[str, str] = MappingProxyType({"bilinear": "linear", "bicubic": "cubic"})
"""Names that operator set 20 replaced."""


def _grid_sample(node: OnnxNode) -> Sequence[Held]:
    mode = node.attr("mode") or "bilinear"
    attrs = {
        "mode": GRID_MODES.get(mode, mode),
        "padding": node.attr("padding_mode") or "zeros",
        "align_corners": bool(node.attr("align_corners")),
    }
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("GridSample", [x, node.input(1)], attrs))


def _roi_align(node: OnnxNode) -> Sequence[Held]:
    """Before operator set 16 coordinates are those of pixels' corners."""
    attrs = {
        "size": (node.attr("output_height"), node.attr("output_width")),
        "scale": node.attr("spatial_scale"),
        "samples": node.attr("sampling_ratio"),
        "mode": node.attr("mode"),
        "half_pixel": node.opset >= 16 and node.attr("coordinate_transformation_mode") == "half_pixel",
    }
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("RoiAlign", [x, node.input(1), node.input(2)], attrs))


def _max_roi_pool(node: OnnxNode) -> Sequence[Held]:
    """Regions [R, 5], the number of the image first."""
    rois, count = node.input(1), node.shape(1)[0]

    def columns(first: int, size: int, tag: str) -> str:
        cut = {"starts": (0, first), "sizes": (count, size), "steps": (1, 1)}
        return node.emit("Slice", [rois], cut, tag=tag)

    flat = node.emit("Reshape", [columns(0, 1, "numbers")], {"shape": (count,)}, tag="flat")
    images = node.emit("Cast", [flat], {"to": DType.I32.value}, tag="images")
    attrs = {"size": tuple(node.attr("pooled_shape")), "scale": node.attr("spatial_scale")}
    x = node.channels_last(node.input(0))
    return node.channels_first(node.emit("RoiMaxPool", [x, columns(1, 4, "corners"), images], attrs))


def _deform_conv(node: OnnxNode) -> Sequence[Held]:
    """A convolution of 1 x 1 of what the moved windows see."""
    kernel = node.shape(1)[2:]
    node.refuse_unless(len(kernel) == 2, f"a kernel of {list(kernel)}; export the model with images")
    group = node.attr("group")
    view = window(node, kernel)
    before, after = paddings(node, view)
    attrs = {
        "kernel": kernel,
        "pads_before": before,
        "pads_after": after,
        **view.steps(),
        "groups": node.attr("offset_group"),
    }
    inputs = [node.channels_last(node.input(i)) for i in (0, 2, 4) if node.has(i)]
    seen = _grouped(node, node.emit("DeformIm2Col", inputs, attrs, tag="patches"), prod(kernel), group)
    flat = (node.shape(1)[0], 1, 1, prod(node.shape(1)[1:]))
    bias = [node.input(3)] if node.has(3) else []
    ones: dict[str, object] = {
        "strides": (1, 1),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    return node.channels_first(
        node.emit("Conv", [seen, _flat_weights(node, flat), *bias], {**ones, "group": group})
    )


def _grouped(node: OnnxNode, patches: str, taps: int, group: int) -> str:
    """Patches [N, h, w, taps * C] with the channels of each group together."""
    if group == 1:
        return patches
    *outer, depth = node.builder.shape(patches)
    apart = node.emit(
        "Reshape", [patches], {"shape": (*outer, taps, group, depth // taps // group)}, tag="groups"
    )
    turned = node.emit("Transpose", [apart], {"perm": (0, 1, 2, 4, 3, 5)}, tag="turned")
    return node.emit("Reshape", [turned], {"shape": (*outer, depth)}, tag="grouped")


def _flat_weights(node: OnnxNode, shape: tuple[int, ...]) -> str:
    """Weights [O, I, *kernel] as [O, 1, 1, *kernel * I]."""

    def flatten(weights: Array) -> Array:
        return weights.transpose(0, 2, 3, 1).reshape(shape)

    if node.array_is_constant(1):
        return node.derived(1, "flat", flatten)
    return node.emit("Reshape", [node.permuted(1, (0, 2, 3, 1))], {"shape": shape}, tag="flat")


def _col2im(node: OnnxNode) -> Sequence[Held]:
    """Columns [N, C * block, windows]."""
    size, block = node.ints(1, "image shape"), node.ints(2, "block shape")
    ones = (1,) * len(size)
    view = Window(size, block, tuple(node.attr("strides") or ones), tuple(node.attr("dilations") or ones))
    before, after = paddings(node, view)
    batch, depth, _ = node.shape(0)
    spans = zip(size, before, after, view.reach, view.strides, strict=True)
    count = tuple((n + a + b - r) // s + 1 for n, a, b, r, s in spans)
    channels = depth // prod(block)
    apart = node.emit(
        "Reshape", [node.input(0)], {"shape": (batch, channels, prod(block), *count)}, tag="apart"
    )
    perm = (0, *range(3, 3 + len(count)), 2, 1)
    turned = node.emit("Transpose", [apart], {"perm": perm}, tag="turned")
    columns = node.emit("Reshape", [turned], {"shape": (batch, *count, depth)}, tag="columns")
    attrs = {"size": size, "kernel": block, **view.steps(), "pads_before": before, "pads_after": after}
    return node.channels_first(node.emit("Col2Im", [columns], attrs))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Col2Im": _col2im,
        "DeformConv": _deform_conv,
        "GridSample": _grid_sample,
        "MaxRoiPool": _max_roi_pool,
        "RoiAlign": _roi_align,
        "com.microsoft::GridSample": _grid_sample,
    }
)
