"""Resize: sample a tensor at other distances along its axes (the operator of ONNX, over all axes at full rank).

Every axis is resampled by itself: a few elements near each coordinate ("taps"), weighted. Coordinates are
computed in single precision, each operation rounded, as the ONNX runtime does, so that ties between two
elements fall the same way.
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
    """The attributes of ONNX's Resize, at full rank.

    sizes, scales: of each axis.  nearest: how mode "nearest" rounds.  cubic_a: the slope at distance 1.
    extrapolation: value outside of `roi`, which is empty or holds all starts, then all ends.
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
    """How one axis is resampled: y[i] = sum over k of weights[i, k] * x[indices[i, k]].

    indices: [out, taps], inside the axis.  weights: [out, taps], f32.
    outside: [out], where the result is the extrapolation value instead.
    """

    indices: Array
    weights: Array
    outside: Array

    def identity(self, size: int) -> bool:
        """Whether an axis of that size stays as it is."""
        here = self.indices == np.arange(len(self.indices))[:, None]
        kept = here | (self.weights == 0)
        return len(self.indices) == size and not self.outside.any() and bool(kept.all())


def axis_taps(attrs: ResizeAttributes, axis: int, size: int) -> Taps:
    """The taps of one axis, which has `size` elements before."""
    out = attrs.sizes[axis]
    if size == 0 or out == 0:
        return Taps(np.zeros((out, 1), np.int64), np.ones((out, 1), F32), np.zeros(out, bool))
    at = _coordinates(attrs, axis, size)
    crop = attrs.coordinates == "tf_crop_and_resize"
    outside = (at < 0) | (at > size - 1) if crop else np.zeros(out, bool)
    match attrs.mode:
        case "nearest":
            indices, weights = _nearest(at, attrs.nearest)[:, None], np.ones((out, 1), F32)
        case "linear":
            indices, weights = _linear(at, size)
        case _:
            indices, weights = _cubic(at, F32(attrs.cubic_a))
            if attrs.exclude_outside:
                weights = np.where((indices < 0) | (indices >= size), F32(0), weights)
                weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(indices, 0, size - 1), weights.astype(F32), outside)


def _coordinates(attrs: ResizeAttributes, axis: int, size: int) -> Array:
    """Where each result lies between the elements of x (ONNX's coordinate_transformation_mode)."""
    sizes = attrs.sizes
    out = sizes[axis]
    scale = F32(attrs.scales[axis])
    i, half, steps = np.arange(out, dtype=F32), F32(0.5), F32(out - 1)
    match attrs.coordinates:
        case "asymmetric":
            at = i / scale
        case "align_corners":
            at = i * F32(size - 1) / steps if out > 1 else i
        case "pytorch_half_pixel":
            at = (i + half) / scale - half if out > 1 else i
        case "half_pixel_symmetric":
            offset = F32(size) / F32(2) * (F32(1) - F32(out) / (scale * F32(size)))
            at = offset + (i + half) / scale - half
        case "tf_crop_and_resize":
            roi = attrs.roi
            start, end, last = F32(roi[axis]), F32(roi[axis + len(sizes)]), F32(size - 1)
            at = (
                start * last + i * (end - start) * last / steps
                if out > 1
                else half * (start + end) * last + i
            )
        case _:
            at = (i + half) / scale - half
    return np.asarray(at, F32)


def _nearest(at: Array, mode: Nearest) -> Array:
    down, up = np.floor(at), np.ceil(at)
    tie_down = mode == "round_prefer_floor"
    match mode:
        case "floor":
            found = down
        case "ceil":
            found = up
        case _:
            nearer_up = at - down > F32(0.5) if tie_down else at - down >= F32(0.5)
            found = np.where(nearer_up, up, down)
    return np.asarray(found).astype(np.int64)


def _linear(at: Array, size: int) -> tuple[Array, Array]:
    at = np.clip(at, F32(0), F32(size - 1))
    down = np.floor(at)
    ratio = at - down
    return np.stack([down, down + 1], axis=1).astype(np.int64), np.stack([1 - ratio, ratio], axis=1)


def _cubic(at: Array, a: np.float32) -> tuple[Array, Array]:
    """R.

    Keys, "Cubic convolution interpolation for digital image processing", 1981, with `a` for the slope at
    distance 1.
    """
    down = np.floor(at)
    t = (at - down).astype(np.float64)
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
    y = x if attrs.mode == "nearest" else x.astype(np.float64)
    for axis, tap in enumerate(taps):
        y = _resampled(y, axis, tap) if not tap.identity(x.shape[axis]) else y
    y = y.astype(x.dtype)
    outside = np.asarray(attrs.extrapolation).astype(x.dtype)
    for axis, tap in enumerate(taps):
        y = np.where(along(tap.outside, axis, y.shape), outside, y)
    return y


def _resampled(x: Array, axis: int, taps: Taps) -> Array:
    picked = [np.take(x, column, axis) for column in taps.indices.T] if x.size else []
    if len(picked) == 1:
        return np.asarray(picked[0])
    shape = (*x.shape[:axis], len(taps.indices), *x.shape[axis + 1 :])
    terms = (p * along(w.astype(x.dtype), axis, shape) for p, w in zip(picked, taps.weights.T, strict=False))
    return np.asarray(sum(terms, np.zeros(shape, x.dtype)))


def along(values: Array, axis: int, shape: Shape) -> Array:
    """Values of one axis, shaped to broadcast with a tensor of that shape."""
    return values.reshape(*(len(values) if n == axis else 1 for n in range(len(shape))))


def _move(attrs: ResizeAttributes, perm: Perm) -> tuple[ResizeAttributes, Perm]:
    moved = replace(attrs, sizes=reorder(attrs.sizes, perm), scales=reorder(attrs.scales, perm))
    if not attrs.roi:
        return moved, perm
    starts, ends = attrs.roi[: len(perm)], attrs.roi[len(perm) :]
    return replace(moved, roi=(*reorder(starts, perm), *reorder(ends, perm))), perm


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
