"""Resizing of images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mace_core.decompositions import nearest_places
from mace_core.lowering import Refused
from mace_core.ops.resize import Coordinates, ResizeAttributes, axis_taps
from mace_tflite_writer.operator import (
    BuiltinOperator,
    ConstantOperand,
    NodeView,
    OperatorOptions,
    need,
    need_same_storage,
)

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

WAYS: tuple[tuple[Coordinates, bool, bool], ...] = (
    ("asymmetric", False, False),
    ("half_pixel", False, True),
    ("align_corners", True, False),
)
"""Coordinates of the IR, and the options AlignCorners and HalfPixelCenters of the format that mean them."""


def _resize(view: NodeView) -> BuiltinOperator:
    attrs = view.attributes(ResizeAttributes)
    shape = view.x.shape
    need(
        len(shape) == 4 and min(*shape, *attrs.sizes) > 0,
        f"it resizes {list(shape)}; the format resizes images of 4 axes",
        "shape",
    )
    unchanged = all(axis_taps(attrs, axis, shape[axis]).is_identity(shape[axis]) for axis in (0, 3))
    need(unchanged, "it resizes the batch or the channels, and the format the two axes between", "attribute")
    need(attrs.mode != "cubic", "the format has no cubic interpolation")
    need_same_storage(view)
    size = ConstantOperand(np.asarray(attrs.sizes[1:3], np.int32))
    for coordinates, corners, half in WAYS:
        nearest = attrs.mode == "nearest"
        agrees = (
            _agrees_nearest(attrs, shape, corners, half) if nearest else _agrees(attrs, shape, coordinates)
        )
        if agrees:
            code = "RESIZE_NEAREST_NEIGHBOR" if nearest else "RESIZE_BILINEAR"
            table = "ResizeNearestNeighborOptions" if nearest else "ResizeBilinearOptions"
            fields = {"AlignCorners": corners, "HalfPixelCenters": half}
            return view.operator(code, [view.node.inputs[0], size], OperatorOptions(table, fields))
    raise Refused(
        f"none of the format's ways to place pixels is coordinates {attrs.coordinates!r} of these sizes",
        code="attribute",
        remedy="export the model with half_pixel, align_corners or asymmetric coordinates",
    )


def _agrees(attrs: ResizeAttributes, shape: tuple[int, ...], coordinates: Coordinates) -> bool:
    """Tell whether interpolation at these coordinates, from the ratio of sizes, weighs the same elements."""
    # The format states no scales: its kernels take the ratio of the sizes.
    scales = tuple(float(a) / b for a, b in zip(attrs.sizes, shape, strict=True))
    plain = replace(attrs, coordinates=coordinates, scales=scales, roi=())
    for axis in (1, 2):
        taps, expected = (axis_taps(a, axis, shape[axis]) for a in (plain, attrs))
        same = np.array_equal(taps.indices, expected.indices) and np.array_equal(
            taps.weights, expected.weights
        )
        if not same or expected.outside.any():
            return False
    return True


def _agrees_nearest(attrs: ResizeAttributes, shape: tuple[int, ...], corners: bool, half: bool) -> bool:
    """Tell whether the format's kernel picks the elements that the op does."""
    for axis in (1, 2):
        taps = axis_taps(attrs, axis, shape[axis])
        picked = nearest_places(shape[axis], attrs.sizes[axis], corners, half)
        if taps.outside.any() or not np.array_equal(taps.indices[:, 0], picked):
            return False
    return True


STATEMENTS: Mapping[str, Statement] = MappingProxyType({"Resize": _resize})
