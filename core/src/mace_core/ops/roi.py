"""RoiAlign and RoiMaxPool: regions of images x [N, H, W, C] as small images of one size.

rois: [R, 4], each x1, y1, x2, y2 in units that `scale` converts to pixels of x.
images: [R], the index of the image that each region lies in.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Tensor
from mace_core.ops.gather import positions
from mace_core.ops.grid_sample import limit_coordinates
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, need_indices, present

MAX_LENGTHS = 8
"""The longest bin, in lengths of the image, that has a sample for each of its pixels."""


@dataclass(frozen=True)
class RoiAttributes(Attributes):
    """size: rows and columns of a result, its bins.  scale: pixels of x for one unit of a region."""

    size: tuple[int, int]
    scale: float = 1.0


@dataclass(frozen=True)
class RoiAlignAttributes(RoiAttributes):
    """samples: number of samples along each axis of a bin; 0 for one a pixel.

    half_pixel: whether coordinates count from the corner of the first pixel; otherwise from its center.
    """

    samples: int = 0
    mode: Literal["avg", "max"] = "avg"
    half_pixel: bool = True


def _check_operands(inputs: Inputs, attrs: RoiAttributes) -> Tensor:
    x, rois, images = present(inputs)
    need(len(x.shape) == 4, f"x has shape {list(x.shape)}; it must be [N, H, W, C]")
    need(x.dtype.is_float, f"x is of type {x.dtype.value}; it must be a float type")
    need(rois.dtype is DType.F32, f"rois are of type {rois.dtype.value}; they must be f32")
    need(
        len(rois.shape) == 2 and rois.shape[1] == 4, f"rois have shape {list(rois.shape)}; it must be [R, 4]"
    )
    need_indices(images, "images")
    need(
        images.shape == rois.shape[:1],
        f"images have shape {list(images.shape)}; it must be [{rois.shape[0]}]",
    )
    need(0 not in x.shape[:3] or 0 in rois.shape, f"x {list(x.shape)} has no pixels")
    need(min(attrs.size) >= 1, f"size is {attrs.size}; both must be positive")
    need(attrs.scale > 0, f"scale is {attrs.scale}; it must be positive")
    return x


def _infer_align(inputs: Inputs, attrs: RoiAlignAttributes) -> list[Spec]:
    x = _check_operands(inputs, attrs)
    need(attrs.samples >= 0, f"samples is {attrs.samples}; it must not be negative")
    return [(x.dtype, (present(inputs)[1].shape[0], *attrs.size, x.shape[-1]))]


def _infer_pool(inputs: Inputs, attrs: RoiAttributes) -> list[Spec]:
    x = _check_operands(inputs, attrs)
    return [(x.dtype, (present(inputs)[1].shape[0], *attrs.size, x.shape[-1]))]


def _samples(bounds: Array, bins: int, size: int, attrs: RoiAlignAttributes) -> tuple[Array, Array, Array]:
    """Return the pixels before and after each sample of one axis, and the weight of the one after.

    bounds: first and last coordinate of the region.  Results are [bins, samples]; a first pixel of -1 marks a
    sample outside of the image.
    """
    shift = 0.5 if attrs.half_pixel else 0.0
    start, end = limit_coordinates(bounds.astype(np.float64) * attrs.scale - shift)
    # Without half pixels (Caffe2, ONNX before opset 16) a region is at least one pixel long.
    length = end - start if attrs.half_pixel else max(end - start, 1.0)
    step = length / bins
    # One sample a pixel. Regions come with the data, and a huge one would ask for 2**24: no more than for
    # a bin of MAX_LENGTHS images, of which nearly all lies outside.
    count = attrs.samples or max(0, min(int(np.ceil(step)), MAX_LENGTHS * size))
    samples = start + np.arange(bins)[:, None] * step + (np.arange(count) + 0.5) * step / max(count, 1)
    # Up to one pixel outside the border pixel counts, beyond it nothing does (ONNX Runtime, Detectron2).
    outside = (samples < -1) | (samples > size)
    samples = np.clip(samples, 0, size - 1)
    low = np.floor(samples).astype(np.int64)
    return np.where(outside, -1, low), np.minimum(low + 1, size - 1), samples - low


def _align_one(image: Array, roi: Array, attrs: RoiAlignAttributes) -> Array:
    bins = attrs.size
    y0, y1, v = _samples(roi[[1, 3]], bins[0], image.shape[0], attrs)
    x0, x1, u = _samples(roi[[0, 2]], bins[1], image.shape[1], attrs)
    inside = (y0 >= 0)[:, :, None, None] & (x0 >= 0)
    corners = []
    for (y, wy), (x, wx) in product(((y0, 1 - v), (y1, v)), ((x0, 1 - u), (x1, u))):
        weight = wy[:, :, None, None] * wx
        pixels = image[np.maximum(y, 0)[:, :, None, None], np.maximum(x, 0)].astype(np.float64)
        corners.append(np.where(inside[..., None], pixels * weight[..., None], 0))
    # In mode "max" a sample is the largest of its weighted pixels, not their sum: so ONNX Runtime computes
    # it.
    samples = np.asarray(sum(corners[1:], corners[0]) if attrs.mode == "avg" else np.maximum.reduce(corners))
    samples = samples.transpose(0, 2, 1, 3, 4).reshape(*bins, -1, image.shape[-1])
    if attrs.mode == "avg":
        return np.asarray(samples.sum(2) / max(samples.shape[2], 1))
    return np.asarray(samples.max(2) if samples.shape[2] else samples.sum(2))


def _align(x: Array, rois: Array, images: Array, attrs: RoiAlignAttributes) -> Array:
    """Compute the mean or the maximum of the samples of every bin."""
    y = np.empty((len(rois), *attrs.size, x.shape[-1]), x.dtype)
    for i, image in enumerate(positions(images, x.shape[0])):
        y[i] = _align_one(x[image], rois[i], attrs)
    return y


def _bins(bounds: Array, bins: int, size: int, scale: float) -> list[tuple[int, int]]:
    """Return for each bin of one axis its first pixel and the one after its last."""
    scaled = limit_coordinates(bounds.astype(np.float64) * scale)
    # C's round, as in the first implementation: halves away from zero, where numpy rounds them to even.
    start, end = (int(v) for v in np.trunc(scaled + np.copysign(0.5, scaled)))
    length = max(end - start + 1, 1)
    # In integers, because a rounded quotient can move a bin's border by one pixel.
    pairs = ((start + i * length // bins, start - (-(i + 1) * length // bins)) for i in range(bins))
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in pairs]


def _max_pool(x: Array, rois: Array, images: Array, attrs: RoiAttributes) -> Array:
    """Return the largest element of every bin, 0 of an empty one (R. Girshick, "Fast R-CNN", 2015)."""
    size = attrs.size
    y = np.zeros((len(rois), *size, x.shape[-1]), x.dtype)
    for i, image in enumerate(positions(images, x.shape[0])):
        rows, columns = (_bins(rois[i, [1 - a, 3 - a]], size[a], x.shape[1 + a], attrs.scale) for a in (0, 1))
        for r, (top, bottom) in enumerate(rows):
            for c, (left, right) in enumerate(columns):
                if top < bottom and left < right:
                    y[i, r, c] = x[image, top:bottom, left:right].max((0, 1))
    return y


_INPUTS = ("x", "rois", "images")
OPS = (
    Op(
        "RoiAlign",
        _INPUTS,
        ("y",),
        _infer_align,
        _align,
        RoiAlignAttributes,
    ),
    Op("RoiMaxPool", _INPUTS, ("y",), _infer_pool, _max_pool, RoiAttributes),
)
