"""Changes of size by interpolation, and patches of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.decompositions import same_paddings
from mace_core.ir import DType, Shape
from mace_core.ops.resize import ResizeAttributes
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import reach

MODES: Mapping[str, str] = MappingProxyType(
    {"ResizeBicubic": "cubic", "ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest"}
)
CUBIC, CUBIC_OF_CENTERS = -0.75, -0.5
"""The slope of the cubic kernel (tensorflow/core/kernels/image/resize_bicubic_op.cc): Keys's own where pixels have centers."""


def _sizes(node: TensorFlowNode, wanted: Sequence[int]) -> Shape:
    shape = node.shape(0)
    node.refuse_unless(
        len(shape) == 4 and len(wanted) == 2 and min(wanted) > 0 and 0 not in shape,
        f"{list(shape)} to {list(wanted)}",
    )
    return (shape[0], *wanted, shape[3])


def _resize(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are the image and its new size; results of all but the nearest element are floats."""
    mode, sizes = MODES[node.op], _sizes(node, node.ints(1, "size"))
    corners, half = node.attr("align_corners", False), node.attr("half_pixel_centers", False)
    node.refuse_unless(
        not (corners and half),
        "align_corners and half_pixel_centers exclude each other; export the model again",
    )
    if mode == "nearest":
        return _nearest(node, sizes, corners, half)
    scales = tuple(float(a) / b for a, b in zip(sizes, node.shape(0), strict=True))
    attrs: dict[str, Any] = {"sizes": sizes, "scales": scales, "mode": mode}
    attrs["coordinates"] = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    attrs |= {"cubic_a": CUBIC_OF_CENTERS if half else CUBIC, "exclude_outside": mode == "cubic" and half}
    x = node.cast(node.input(0), DType.F32)
    return [x] if sizes == node.shape(0) else node.done("Resize", [x], attrs)


def _nearest(node: TensorFlowNode, sizes: Shape, corners: bool, half: bool) -> Sequence[Held]:
    shape = node.shape(0)
    if sizes == shape:
        return [node.held(0)]
    if half:
        return _nearest_centers(node, sizes)
    scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
    if corners:
        attrs = ResizeAttributes(sizes, scales, coordinates="align_corners", nearest="round_prefer_ceil")
    else:
        attrs = ResizeAttributes(sizes, scales, coordinates="asymmetric", nearest="floor")
    return node.done("Resize", [node.input(0)], attrs)


def _nearest_centers(node: TensorFlowNode, sizes: Shape) -> Sequence[Held]:
    """The element in which floor((i + 0.5) * size / new size) lies: rows looked up axis by axis."""
    tensor, shape = node.input(0), node.shape(0)
    for axis in (1, 2):
        scale = np.float32(shape[axis]) / np.float32(sizes[axis])
        centers = (node.counted(sizes[axis]).astype(np.float32) + np.float32(0.5)) * scale
        places = np.minimum(np.floor(centers).astype(np.int64), shape[axis] - 1)
        if not np.array_equal(places, np.arange(shape[axis])):
            tensor = node.emit(
                "Gather",
                [tensor, node.add_constant(places, DType.I64, "places")],
                {"axis": axis},
                tag="resized",
            )
    return [tensor]


def _crop_and_resize(node: TensorFlowNode) -> Sequence[Held]:
    """Regions of images, each in a size: operands are images, boxes in fractions [y, x, y, x], the image of each, and the size."""
    boxes, images = node.constant(1, "boxes"), node.constant(2, "images of boxes").reshape(-1)
    mode, sizes, shape = node.attr("method", "bilinear"), node.ints(3, "size"), node.shape(0)
    node.refuse_unless(mode in ("bilinear", "nearest"), f"method {mode!r} is not supported")
    node.refuse_unless(
        boxes.shape == (len(images), 4) and bool(len(images)),
        f"{len(images)} images for boxes {list(boxes.shape)}",
    )
    node.refuse_unless(
        bool(((images >= 0) & (images < shape[0])).all()), f"images {images.tolist()} of {shape[0]}"
    )
    made = _sizes(node, sizes)
    scales = (1.0, *(float(a) / b for a, b in zip(sizes, shape[1:3], strict=True)), 1.0)
    parts = []
    for box, image in zip(boxes.astype(float), images, strict=True):
        cut = {"starts": (int(image), 0, 0, 0), "sizes": (1, *shape[1:]), "steps": (1,) * 4}
        one = node.cast(node.emit("Slice", [node.input(0)], cut, tag="image"), DType.F32)
        attrs: dict[str, Any] = {
            "sizes": (1, *made[1:]),
            "scales": scales,
            "mode": "linear" if mode == "bilinear" else mode,
        }
        attrs |= {
            "coordinates": "tf_crop_and_resize",
            "roi": (0.0, *box[:2], 0.0, 1.0, *box[2:], 1.0),
            "nearest": "round_prefer_ceil",
        }
        attrs["extrapolation"] = node.attr("extrapolation_value", 0.0)
        parts.append(node.emit("Resize", [one], attrs, tag="crop"))
    return parts if len(parts) == 1 else node.done("Concat", parts, {"axis": 0})


def _patches(node: TensorFlowNode) -> Sequence[Held]:
    """What each window sees, laid out in the channels."""
    shape, name = node.shape(0), "ksizes"
    lists = [node.attr(key, (1,) * len(shape)) for key in (name, "strides", "rates")]
    fits = all(
        len(values) == len(shape) and min(values) > 0 and values[0] == values[-1] == 1 for values in lists
    )
    node.refuse_unless(
        fits and len(shape) in (4, 5),
        f"ksizes, strides and rates {[list(v) for v in lists]} of {list(shape)}",
    )
    kernel, strides, rates = (tuple(values[1:-1]) for values in lists)
    padding = node.attr("padding", "")
    node.refuse_unless(padding in ("SAME", "VALID"), f"padding {padding!r} is not supported")
    none = (0,) * len(kernel)
    before, after = (
        same_paddings(shape[1:-1], reach(kernel, rates), strides) if padding == "SAME" else (none, none)
    )
    attrs = {
        "kernel": kernel,
        "strides": strides,
        "pads_before": before,
        "pads_after": after,
        "dilations": rates,
    }
    return node.done("Im2Col", [node.input(0)], attrs)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(MODES, _resize),
        "CropAndResize": _crop_and_resize,
        "ExtractImagePatches": _patches,
    }
)
