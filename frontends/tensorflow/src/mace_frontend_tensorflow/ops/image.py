"""Images resized by interpolation, and patches of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, product
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.decompositions import nearest_places, nearest_resize, same_paddings
from mace_core.ir import Array, DType, Shape
from mace_core.ops.resize import ResizeAttributes
from mace_frontend_tensorflow.node import CUT_BEFORE, MAX_INDICES, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import reach
from mace_frontend_tensorflow.values import OptionalValue

MODES: Mapping[str, str] = MappingProxyType(
    {"ResizeBicubic": "cubic", "ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest"}
)
CUBIC, CUBIC_OF_CENTERS = -0.75, -0.5
"""The slope of the cubic kernel (tensorflow/core/kernels/image/resize_bicubic_op.cc).

-0.5, which R. Keys derived, came with the pixels' centers; the older coordinates kept what they had.
"""


def _shape_after(node: TensorFlowNode, size: Sequence[int]) -> Shape:
    """Return the shape of images [N, H, W, C] after they are resized to height and width."""
    shape = node.shape(0)
    node.refuse_unless(
        len(shape) == 4 and len(size) == 2 and min(size) > 0 and 0 not in shape,
        f"images of shape {list(shape)} are resized to {list(size)}",
    )
    return (shape[0], *size, shape[3])


def _resize(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add images resized; operands are the images and the size.

    Results are floats, but for the nearest element, which keeps its type.
    """
    mode, sizes = MODES[node.op], _shape_after(node, node.ints(1, "size"))
    corners, half = node.attr("align_corners", False), node.attr("half_pixel_centers", False)
    node.refuse_unless(
        not (corners and half), "it has align_corners and half_pixel_centers, which exclude each other"
    )
    if mode == "nearest":
        return _nearest(node, sizes, corners, half)
    scales = tuple(float(a) / b for a, b in zip(sizes, node.shape(0), strict=True))
    coordinates = "half_pixel" if half else "asymmetric"
    attrs: dict[str, Any] = {"sizes": sizes, "scales": scales, "mode": mode}
    attrs["coordinates"] = "align_corners" if corners else coordinates
    # With centers the kernel leaves out what lies outside of the image, and divides by the sum of the rest.
    attrs |= {"cubic_a": CUBIC_OF_CENTERS if half else CUBIC, "exclude_outside": mode == "cubic" and half}
    x = node.cast(node.input(0), DType.F32)
    return [x] if sizes == node.shape(0) else node.done("Resize", [x], attrs)


def _nearest(node: TensorFlowNode, sizes: Shape, corners: bool, half: bool) -> Sequence[OptionalValue]:
    """Add the nearest elements, by a Resize where it selects the same ones, else by a lookup of each axis."""
    tensor, shape = node.input(0), node.shape(0)
    if sizes == shape:
        return [node.value(0)]
    node.refuse_unless(max(sizes) <= MAX_INDICES, f"it resizes to {list(sizes)}", CUT_BEFORE)
    scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
    if resize := nearest_resize(ResizeAttributes(sizes, scales), shape, corners, half):
        return node.done("Resize", [tensor], resize)
    for axis in (1, 2):
        if sizes[axis] != shape[axis]:
            indices = nearest_places(shape[axis], sizes[axis], corners, half)
            rows = node.add_constant(indices, DType.I64, "places")
            tensor = node.emit("Gather", [tensor, rows], {"axis": axis}, tag="resized")
    return [tensor]


MAX_NUDGE = 4
"""By how many last digits an end of a region is moved: the orders of operations differ by one or two."""

NUDGES = tuple(
    sorted(product(range(-MAX_NUDGE, MAX_NUDGE + 1), repeat=2), key=lambda pair: abs(pair[0]) + abs(pair[1]))
)
"""Moves of the start and of the end, the shortest first."""


def _crop_and_resize(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add regions of images, all resized to one size.

    Operands are the images, boxes as fractions [top, left, bottom, right], the image of each box, and the
    size. Boxes must be constants, because the attributes of the IR's op are.
    """
    boxes, images = node.constant(1, "boxes"), node.constant(2, "images of boxes").reshape(-1)
    mode, sizes, shape = node.attr("method", "bilinear"), node.ints(3, "size"), node.shape(0)
    node.refuse_unless(mode in ("bilinear", "nearest"), f"method {mode!r} is not supported", CUT_BEFORE)
    node.refuse_unless(
        boxes.shape == (len(images), 4) and bool(len(images)),
        f"it has {len(images)} images for boxes of shape {list(boxes.shape)}",
    )
    node.refuse_unless(
        bool(((images >= 0) & (images < shape[0])).all()),
        f"its boxes lie in images {images.tolist()} of {shape[0]}",
    )
    result_shape = _shape_after(node, sizes)
    scales = (1.0, *(float(a) / b for a, b in zip(sizes, shape[1:3], strict=True)), 1.0)
    parts = []
    for box, index in zip(boxes, images, strict=True):
        fits = [_fit_region(box[axis::2], shape[axis + 1], sizes[axis]) for axis in range(2)]
        # Start and end of the rows, then those of the columns.
        fractions = list(map(float, chain.from_iterable(filter(None, fits))))
        node.refuse_unless(
            len(fractions) == 4,
            f"the border of its image is rounded otherwise in box {box.tolist()}",
            CUT_BEFORE,
        )
        slice_attrs = {"starts": (int(index), 0, 0, 0), "sizes": (1, *shape[1:]), "steps": (1,) * 4}
        image = node.cast(node.emit("Slice", [node.input(0)], slice_attrs, tag="image"), DType.F32)
        attrs: dict[str, Any] = {
            "sizes": (1, *result_shape[1:]),
            "scales": scales,
            "mode": "linear" if mode == "bilinear" else mode,
        }
        attrs |= {
            "coordinates": "tf_crop_and_resize",
            "roi": (0.0, *fractions[::2], 0.0, 1.0, *fractions[1::2], 1.0),
            "nearest": "round_prefer_ceil",
        }
        attrs["extrapolation"] = node.attr("extrapolation_value", 0.0)
        parts.append(node.emit("Resize", [image], attrs, tag="crop"))
    return parts if len(parts) == 1 else node.done("Concat", parts, {"axis": 0})


def _fit_region(region: Array, size: int, count: int) -> tuple[np.float32, np.float32] | None:
    """Return the start and end for which the IR finds the places that TensorFlow finds inside of the image.

    Both compute in single precision, the IR in ONNX's order of operations, so that a place on the border may
    lie beyond it by the last digit, and become the value for outside.
    region: start and end.  None where no move of both by a few digits helps.
    """
    start, end = region
    if count < 2:
        return start, end
    last, steps, places = np.float32(size - 1), np.float32(count - 1), np.arange(count, dtype=np.float32)
    # crop_and_resize_op.cc, functor::CropAndResize: height_scale and in_y.
    expected = start * last + places * ((end - start) * last / steps)
    is_inside = (expected >= 0) & (expected <= last)
    digit = np.spacing(max(abs(start), abs(end)))
    for moves in NUDGES:
        first, final = (
            np.float32(old + np.float32(move) * digit) for old, move in zip(region, moves, strict=True)
        )
        computed = first * last + places * (final - first) * last / steps
        if np.array_equal(is_inside, (computed >= 0) & (computed <= last)):
            return first, final
    return None


def _patches(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add what each window sees, laid out in the channels."""
    shape = node.shape(0)
    lists = [node.attr(key, (1,) * len(shape)) for key in ("ksizes", "strides", "rates")]
    fits = all(
        len(values) == len(shape) and min(values) > 0 and values[0] == values[-1] == 1 for values in lists
    )
    node.refuse_unless(
        fits and len(shape) in (4, 5),
        f"it has ksizes, strides and rates {[list(v) for v in lists]} for a shape of {list(shape)}",
    )
    kernel, strides, rates = (tuple(values[1:-1]) for values in lists)
    padding = node.attr("padding", "")
    node.refuse_unless(padding in ("SAME", "VALID"), f"padding {padding!r} is not supported")
    before = after = (0,) * len(kernel)
    if padding == "SAME":
        before, after = same_paddings(shape[1:-1], reach(kernel, rates), strides)
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
