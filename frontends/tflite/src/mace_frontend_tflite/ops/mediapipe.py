"""MediaPipe's custom operators for images, as its kernels define them.

Source of the formulas: mediapipe/util/tflite/operations, Apache-2.0: facts only.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.decompositions import same_paddings
from mace_core.ir import Shape
from mace_frontend_tflite.fused_activation import clamp_bounds
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

SAME, VALID = 1, 2
"""TfLitePadding in tensorflow/lite/c; the schema of the file has other numbers."""

INSIDE = 0.1
"""Added to a place in a window, a float, so that a cast to an integer never gives the one before."""


def _parameters(node: TfliteNode, count: int) -> tuple[int, ...]:
    """Return the first integers of the operator's C struct, which the file holds as it lies in memory."""
    data = node.operator.custom
    node.refuse_unless(
        len(data) >= 4 * count,
        f"its options are {len(data)} bytes, and {4 * count} were expected; convert the model again",
    )
    return struct.unpack_from(f"<{count}i", data)


def _conv_transpose_with_bias(node: TfliteNode) -> Sequence[str]:
    """Add Convolution2DTransposeBias(x, filters [O, H, W, I], bias).

    Its options are a TfLiteTransposeConvParams: padding, stride along W, stride along H.
    """
    padding, *strides_wh = _parameters(node, 3)
    strides = (strides_wh[1], strides_wh[0])
    x, filters = node.shape(0), node.shape(1)
    node.require_consistent(
        len(x) == len(filters) == 4 and min(strides) > 0,
        f"it has an image of {list(x)}, filters of {list(filters)} and strides {strides}",
    )
    node.require_consistent(padding in (SAME, VALID), f"it has padding {padding}")
    cut = [0, 0]
    if padding == SAME:
        cut = [max(0, k - (n - 1) % s - 1) for n, k, s in zip(x[1:3], filters[1:3], strides, strict=True)]
    before = tuple(c // 2 for c in cut)
    attrs = {
        "strides": strides,
        "dilations": (1, 1),
        "pads_before": before,
        "pads_after": tuple(c - b for c, b in zip(cut, before, strict=True)),
        "output_padding": (0, 0),
    }
    return node.done("ConvTranspose", [node.input(0), node.input(1), node.input(2)], attrs)


def _window(node: TfliteNode) -> tuple[int, Shape, Shape, int]:
    """Return padding, strides (H, W), size (H, W) and activation, as a TfLitePoolParams has them."""
    padding, stride_w, stride_h, width, height, activation = _parameters(node, 6)
    node.require_consistent(
        min(stride_w, stride_h, width, height) > 0,
        f"it has a window of {(height, width)} by {(stride_h, stride_w)}",
    )
    node.require_consistent(len(node.shape(0)) == 4, f"it has an image of shape {list(node.shape(0))}")
    return padding, (stride_h, stride_w), (height, width), activation


def _max_pool_with_places(node: TfliteNode) -> Sequence[str]:
    """Add MaxPoolingWithArgmax2D: the maximum of each window, and its place in the window as a float."""
    padding, strides, kernel, activation = _window(node)
    node.require_consistent(padding in (SAME, VALID), f"it has padding {padding}")
    bounds = clamp_bounds(activation)
    node.refuse_unless(
        bounds is not None,
        f"fused activation {activation} is not supported; cut the graph before it with output_tensors",
    )
    assert bounds is not None
    x, shape = node.input(0), node.shape(0)
    before, after = same_paddings(shape[1:3], kernel, strides) if padding == SAME else ((0, 0), (0, 0))
    attrs = {"kernel": kernel, "strides": strides, "dilations": (1, 1)}
    pool = node.emit("MaxPool", [x], {**attrs, "pads_before": before, "pads_after": after}, tag="greatest")
    # Padding must never be the maximum, and Im2Col pads with zeros: so the image is padded before, with the
    # lowest float.
    around = {"before": (0, *before, 0), "after": (0, *after, 0), "value": float(np.finfo(np.float32).min)}
    padded = node.emit("Pad", [x], around, tag="padded") if any((*before, *after)) else x
    columns = node.emit(
        "Im2Col", [padded], {**attrs, "pads_before": (0, 0), "pads_after": (0, 0)}, tag="windows"
    )
    apart = node.emit(
        "Reshape", [columns], {"shape": (*node.tensor(pool).shape[:3], prod(kernel), shape[3])}, tag="apart"
    )
    place = node.emit("ArgMax", [apart], {"axis": 3, "keepdims": False}, tag="place")
    number = node.emit("Cast", [place], {"to": "f32"}, tag="number")
    inside = node.emit("Add", [number, node.add_constant(np.float32(INSIDE), tag="inside")], tag="inside")
    values = pool
    if bounds != (-np.inf, np.inf):
        values = node.emit("Clip", [pool], {"min": bounds[0], "max": bounds[1]}, tag="values")
    return [values, inside]


def _max_unpool(node: TfliteNode) -> Sequence[str]:
    """Add MaxUnpooling2D(x, places): each value at its place in a window of zeros."""
    _, strides, kernel, _ = _window(node)
    node.refuse_unless(
        strides == kernel,
        f"windows of {kernel} at strides of {strides}; windows that lie side by side are supported",
    )
    batch, rows, columns, channels = node.shape(0)
    node.require_consistent(
        node.shape(1) == node.shape(0),
        f"it has places of shape {list(node.shape(1))} for {list(node.shape(0))}",
    )
    count = prod(kernel)
    each = (batch, rows, columns, 1, channels)
    # A value is compared with every place of its window, which needs no scatter and works for all windows at
    # once.
    floats = node.emit("Reshape", [node.input(1)], {"shape": each}, tag="places")
    place = node.emit("Cast", [floats], {"to": "i32"}, tag="place")
    known = node.add_constant(np.arange(count, dtype=np.int32).reshape(count, 1), tag="known")
    here = node.emit("Cast", [node.emit("Equal", [place, known], tag="equal")], {"to": "f32"}, tag="here")
    values = node.emit("Reshape", [node.input(0)], {"shape": each}, tag="values")
    spread = node.emit("Mul", [here, values], tag="spread")
    windows = node.emit(
        "Reshape", [spread], {"shape": (batch, rows, columns, *kernel, channels)}, tag="windows"
    )
    image = node.emit("Transpose", [windows], {"perm": (0, 1, 3, 2, 4, 5)}, tag="image")
    return node.done("Reshape", [image], {"shape": (batch, rows * kernel[0], columns * kernel[1], channels)})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "custom Convolution2DTransposeBias": _conv_transpose_with_bias,
        "custom MaxPoolingWithArgmax2D": _max_pool_with_places,
        "custom MaxUnpooling2D": _max_unpool,
    }
)
