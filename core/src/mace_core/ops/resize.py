"""Resize: sample a tensor at other distances along its axes, as the ONNX operator over all axes.

Each axis is resampled on its own: a result is the weighted sum of a few elements near its coordinate, its
"taps". Coordinates are computed in single precision, each operation rounded, as ONNX Runtime does, so that
ties between two elements fall the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.pad import need_value
from mace_core.ops.shapes import Inputs, need, need_count, present, reorder

Mode = Literal["nearest", "linear", "cubic"]
Coordinates = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
Nearest = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]

F32 = np.float32


@dataclass(frozen=True)
class ResizeAttributes(Attributes):
    """The attributes of ONNX's Resize, with a value for every axis.

    sizes, scales: length of the result, and its ratio to that of the input, for each axis.
    nearest: how mode "nearest" rounds.  cubic_a: the slope of the cubic kernel at distance 1.
    roi: empty, or the starts of all axes, then their ends.  extrapolation: the value outside of it.
    """

    sizes: tuple[int, ...]
    scales: tuple[float, ...]
    mode: Mode = "nearest"
    coordinates: Coordinates = "half_pixel"
    nearest: Nearest = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: int | float = 0.0
    roi: tuple[float, ...] = ()


@dataclass(frozen=True)
class Taps:
    """The taps of one axis: y[i] = sum over k of weights[i, k] * x[indices[i, k]].

    indices: [out, taps], all inside the axis.  weights: [out, taps], f32.
    outside: [out], true where the result is the extrapolation value instead.
    """

    indices: Array
    weights: Array
    outside: Array

    def is_identity(self, size: int) -> bool:
        """Tell whether an axis of that size stays as it is."""
        if len(self.indices) != size or self.outside.any():
            return False
        reads_itself = self.indices == np.arange(size)[:, None]
        return bool((reads_itself | (self.weights == 0)).all())


def axis_taps(attrs: ResizeAttributes, axis: int, size: int) -> Taps:
    """Compute the taps of one axis.  size: its length in the input."""
    out = attrs.sizes[axis]
    if size == 0 or out == 0:
        return Taps(np.zeros((out, 1), np.int64), np.ones((out, 1), F32), np.zeros(out, bool))
    coordinates = _coordinates(attrs, axis, size)
    crop = attrs.coordinates == "tf_crop_and_resize"
    outside = (coordinates < 0) | (coordinates > size - 1) if crop else np.zeros(out, bool)
    match attrs.mode:
        case "nearest":
            indices, weights = _nearest(coordinates, attrs.nearest)[:, None], np.ones((out, 1), F32)
        case "linear":
            indices, weights = _linear(coordinates, size)
        case _:
            indices, weights = _cubic(coordinates, F32(attrs.cubic_a))
            if attrs.exclude_outside:
                # ONNX: the taps that are left are scaled so that they add up to 1 again.
                weights = np.where((indices < 0) | (indices >= size), F32(0), weights)
                weights = weights / weights.sum(axis=1, keepdims=True)
    # A tap outside reads the nearest element, that is, the border is repeated.
    return Taps(np.clip(indices, 0, size - 1), weights.astype(F32), outside)


def _coordinates(attrs: ResizeAttributes, axis: int, size: int) -> Array:
    """Return the coordinate in x of each result, by ONNX's coordinate_transformation_mode."""
    sizes = attrs.sizes
    out = sizes[axis]
    scale = F32(attrs.scales[axis])
    i, half, steps = np.arange(out, dtype=F32), F32(0.5), F32(out - 1)
    match attrs.coordinates:
        case "asymmetric":
            coordinates = i / scale
        case "align_corners":
            coordinates = i * F32(size - 1) / steps if out > 1 else i
        case "pytorch_half_pixel":
            # Reads the first element where the result has only one; half_pixel reads the middle.
            coordinates = (i + half) / scale - half if out > 1 else i
        case "half_pixel_symmetric":
            # Keeps the center of the result over the center of x where scale * size is no integer.
            offset = F32(size) / F32(2) * (F32(1) - F32(out) / (scale * F32(size)))
            coordinates = offset + (i + half) / scale - half
        case "tf_crop_and_resize":
            roi = attrs.roi
            start, end, last = F32(roi[axis]), F32(roi[axis + len(sizes)]), F32(size - 1)
            middle = half * (start + end) * last
            coordinates = start * last + i * (end - start) * last / steps if out > 1 else middle + i
        case _:
            coordinates = (i + half) / scale - half
    return np.asarray(coordinates, F32)


def _nearest(coordinates: Array, mode: Nearest) -> Array:
    down, up = np.floor(coordinates), np.ceil(coordinates)
    fraction = coordinates - down
    match mode:
        case "floor":
            nearest = down
        case "ceil":
            nearest = up
        case "round_prefer_floor":
            nearest = np.where(fraction > F32(0.5), up, down)
        case _:
            nearest = np.where(fraction >= F32(0.5), up, down)
    return np.asarray(nearest).astype(np.int64)


def _linear(coordinates: Array, size: int) -> tuple[Array, Array]:
    # Clipped before the fraction is taken: beyond the border the nearest element counts fully.
    coordinates = np.clip(coordinates, F32(0), F32(size - 1))
    down = np.floor(coordinates)
    ratio = coordinates - down
    return np.stack([down, down + 1], axis=1).astype(np.int64), np.stack([1 - ratio, ratio], axis=1)


def _cubic(coordinates: Array, a: np.float32) -> tuple[Array, Array]:
    """Return the taps of cubic convolution with slope `a` at distance 1.

    R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
    """
    down = np.floor(coordinates)
    t = (coordinates - down).astype(np.float64)
    far, near = np.stack([t + 1, 2 - t]), np.stack([t, 1 - t])
    outer = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    inner = ((a + 2) * near - (a + 3)) * near * near + 1
    indices = down[:, None].astype(np.int64) + np.arange(-1, 3)
    return indices, np.stack([outer[0], inner[0], inner[1], outer[1]], axis=1)


def _infer(inputs: Inputs, attrs: ResizeAttributes) -> list[Spec]:
    (x,) = present(inputs)
    rank = len(x.shape)
    need_count("sizes", attrs.sizes, rank)
    need_count("scales", attrs.scales, rank)
    for axis, (dim, size, scale) in enumerate(zip(x.shape, attrs.sizes, attrs.scales, strict=True)):
        need(size >= 0, f"size {size} of axis {axis} is negative")
        need(scale > 0, f"scale {scale} of axis {axis} is not positive")
        need(dim > 0 or size == 0, f"axis {axis} has no elements to make {size} of")
    need(
        attrs.mode == "nearest" or x.dtype.is_float,
        f"mode {attrs.mode!r} of type {x.dtype.value}; only mode 'nearest' takes it",
    )
    if attrs.coordinates == "tf_crop_and_resize":
        need(len(attrs.roi) == 2 * rank, f"roi has {len(attrs.roi)} values; it must have {2 * rank}")
        need_value(attrs.extrapolation, x.dtype, "extrapolation")
    return [(x.dtype, attrs.sizes)]


def _resize(x: Array, attrs: ResizeAttributes) -> Array:
    taps = [axis_taps(attrs, axis, size) for axis, size in enumerate(x.shape)]
    # Mode "nearest" only copies elements, so integers of 64 bits stay exact.
    y = x if attrs.mode == "nearest" else x.astype(np.float64)
    for axis, tap in enumerate(taps):
        if not tap.is_identity(x.shape[axis]):
            y = _resample_axis(y, axis, tap)
    y = y.astype(x.dtype)
    outside = np.asarray(attrs.extrapolation).astype(x.dtype)
    for axis, tap in enumerate(taps):
        y = np.where(reshape_for_axis(tap.outside, axis, y.shape), outside, y)
    return y


def _resample_axis(x: Array, axis: int, taps: Taps) -> Array:
    shape = (*x.shape[:axis], len(taps.indices), *x.shape[axis + 1 :])
    if not x.size:
        return np.zeros(shape, x.dtype)
    elements = [np.take(x, column, axis) for column in taps.indices.T]
    if len(elements) == 1:
        return np.asarray(elements[0])
    terms = (
        element * reshape_for_axis(weights.astype(x.dtype), axis, shape)
        for element, weights in zip(elements, taps.weights.T, strict=True)
    )
    return np.asarray(sum(terms, np.zeros(shape, x.dtype)))


def reshape_for_axis(values: Array, axis: int, shape: Shape) -> Array:
    """Reshape values of one axis so that they broadcast with a tensor of that shape."""
    return values.reshape(*(len(values) if n == axis else 1 for n in range(len(shape))))


def _move(attrs: ResizeAttributes, perm: Perm) -> tuple[ResizeAttributes, Perm]:
    moved = replace(attrs, sizes=reorder(attrs.sizes, perm), scales=reorder(attrs.scales, perm))
    if not attrs.roi:
        return moved, perm
    starts, stops = attrs.roi[: len(perm)], attrs.roi[len(perm) :]
    return replace(moved, roi=(*reorder(starts, perm), *reorder(stops, perm))), perm


OPS = (
    Op(
        "Resize",
        ("x",),
        ("y",),
        _infer,
        _resize,
        ResizeAttributes,
        move=_move,
    ),
)
