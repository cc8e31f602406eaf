"""Im2Col, Col2Im, DeformIm2Col, MaxPoolIndices: windows as rows of a matrix, and the place of their maximum.

x is [N, *spatial, C]. The elements of one window are a row [*kernel, C], with C as its last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from mace_core.ir import Array, DType
from mace_core.ops.grid_sample import limit_coordinates
from mace_core.ops.op import Op, Spec
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.shapes import Inputs, need, present
from mace_core.ops.windows import Ints, KernelAttributes, Windows, need_integers


@dataclass(frozen=True)
class Col2ImAttributes(KernelAttributes):
    """size: length of the image along each spatial axis."""

    size: Ints


@dataclass(frozen=True)
class DeformIm2ColAttributes(KernelAttributes):
    """groups: number of parts of the channels, each with offsets of its own."""

    groups: int = 1


def _infer_im2col(inputs: Inputs, attrs: KernelAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    count = attrs.windows(len(x.shape) - 2).count(x.shape[1:-1])
    return [(x.dtype, (x.shape[0], *count, prod(attrs.kernel) * x.shape[-1]))]


def _im2col(x: Array, attrs: KernelAttributes) -> Array:
    """Copy the elements of each window to a row; the padding is zeros."""
    windows = Windows.of(attrs.kernel, attrs)
    count = windows.count(x.shape[1:-1])
    padded = windows.pad_input(x, count, 0)
    return np.concatenate([windows.view_tap(padded, tap, count) for tap in windows.taps()], -1)


def _infer_col2im(inputs: Inputs, attrs: Col2ImAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    need(x.dtype is not DType.BOOL, "x is bool, expected numbers")
    axes = len(x.shape) - 2
    kernel, size = attrs.kernel, attrs.size
    need_integers("size", size, axes)
    count = attrs.windows(axes).count(size)
    need(count == x.shape[1:-1], f"x has {list(x.shape[1:-1])} windows; {list(size)} has {list(count)}")
    need(
        x.shape[-1] % prod(kernel) == 0,
        f"the last axis, {x.shape[-1]}, does not divide into windows of {prod(kernel)}",
    )
    return [(x.dtype, (x.shape[0], *size, x.shape[-1] // prod(kernel)))]


def _col2im(x: Array, attrs: Col2ImAttributes) -> Array:
    """Add the rows into an image: the elements of windows that overlap are summed."""
    windows = Windows.of(attrs.kernel, attrs)
    size, count, channels = attrs.size, x.shape[1:-1], x.shape[-1] // prod(windows.kernel)
    wide = np.float64 if x.dtype.kind == "f" else x.dtype
    padded = windows.pad_input(np.zeros((x.shape[0], *size, channels), wide), count, 0)
    for i, tap in enumerate(windows.taps()):
        view = windows.view_tap(padded, tap, count)
        # In place: `view` shares the memory of `padded`.
        view += x[..., i * channels : (i + 1) * channels]
    inside = tuple(slice(b, b + n) for b, n in zip(windows.before, size, strict=True))
    return padded[(slice(None), *inside)].astype(x.dtype)


def _infer_deform(inputs: Inputs, attrs: DeformIm2ColAttributes) -> list[Spec]:
    x, offset, *mask = present(inputs)
    need(len(x.shape) == 4, f"x has shape {list(x.shape)}; it must be [N, H, W, C]")
    for t in (x, offset, *mask):
        need(t.dtype is DType.F32, f"{t.name} is of type {t.dtype.value}; it must be f32")
    windows, kernel, groups = attrs.windows(2), attrs.kernel, attrs.groups
    need(
        groups >= 1 and x.shape[-1] % groups == 0,
        f"{x.shape[-1]} channels do not divide into {groups} groups",
    )
    count = (x.shape[0], *windows.count(x.shape[1:-1]))
    for t, each in ((offset, 2), *((m, 1) for m in mask)):
        expected = (*count, groups * prod(kernel) * each)
        need(t.shape == expected, f"{t.name} has shape {list(t.shape)}; it must be {list(expected)}")
    need(0 not in x.shape, f"x {list(x.shape)} has no elements to sample")
    return [(x.dtype, (*count, prod(kernel) * x.shape[-1]))]


def _sample_bilinear(x: Array, ys: Array, xs: Array) -> Array:
    """Sample x [N, H, W, C] at coordinates [N, oh, ow] of every image; around it are zeros."""
    height, width = x.shape[1:3]
    batch = np.arange(x.shape[0]).reshape(-1, 1, 1)
    total = np.zeros((*ys.shape, x.shape[-1]))
    for down, right in product((0, 1), repeat=2):
        row, column = np.floor(ys) + down, np.floor(xs) + right
        weight = (1 - abs(ys - row)) * (1 - abs(xs - column))
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        # Clipped only so that numpy can read; what lies outside counts as 0 (torchvision's deform_conv2d).
        rows = np.clip(row, 0, height - 1).astype(np.int64)
        columns = np.clip(column, 0, width - 1).astype(np.int64)
        total += np.where(inside[..., None], x[batch, rows, columns] * weight[..., None], 0)
    return total


def _deform_im2col(
    x: Array, offset: Array, mask: Array | None = None, *, attrs: DeformIm2ColAttributes
) -> Array:
    """Compute Im2Col with each sample moved by `offset` (y, x) and multiplied by `mask`.

    Each of the groups of channels has offsets [*kernel, 2] and a mask [*kernel] of its own (X. Zhu et al.,
    "Deformable ConvNets v2: More Deformable, Better Results", 2019).
    """
    windows = Windows.of(attrs.kernel, attrs)
    groups = attrs.groups
    n, height, width = offset.shape[:3]
    taps = prod(windows.kernel)
    offsets = offset.reshape(n, height, width, groups, taps, 2).astype(np.float64)
    channels = x.shape[-1] // groups
    y = np.empty((n, height, width, taps, x.shape[-1]))
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    for i, tap in enumerate(windows.taps()):
        start = [t * d - b for t, d, b in zip(tap, windows.dilations, windows.before, strict=True)]
        for g in range(groups):
            ys, xs = (
                limit_coordinates(index * windows.strides[axis] + start[axis] + offsets[:, :, :, g, i, axis])
                for axis, index in enumerate((rows, columns))
            )
            of_group = slice(g * channels, (g + 1) * channels)
            samples = _sample_bilinear(x[..., of_group], ys, xs)
            y[..., i, of_group] = samples if mask is None else samples * mask[..., g * taps + i, None]
    return y.reshape(n, height, width, -1).astype(x.dtype)


def _infer_indices(inputs: Inputs, attrs: PoolAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype is not DType.BOOL, "x is bool, expected numbers")
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    windows = attrs.windows(len(x.shape) - 2)
    shape = (x.shape[0], *windows.count(x.shape[1:-1], attrs.ceil), x.shape[-1])
    return [(x.dtype, shape), (DType.I64, shape)]


def _max_indices(x: Array, attrs: PoolAttributes) -> tuple[Array, Array]:
    """Compute MaxPool, and the position of each maximum in its flat image [*spatial].

    Of equal elements the first counts, a NaN before all others; -1 stands for a window of padding only.
    """
    windows = Windows.of(attrs.kernel, attrs)
    out = windows.count(x.shape[1:-1], attrs.ceil)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = windows.pad_input(x, out, lowest)
    positions = np.arange(prod(x.shape[1:-1]), dtype=np.int64).reshape(1, *x.shape[1:-1], 1)
    indices = windows.pad_input(np.broadcast_to(positions, x.shape), out, -1)
    best = np.full((x.shape[0], *out, x.shape[-1]), lowest, x.dtype)
    index = np.full(best.shape, -1, np.int64)
    for tap in windows.taps():
        v, position = windows.view_tap(padded, tap, out), windows.view_tap(indices, tap, out)
        more = (position >= 0) & ((index < 0) | (v > best) | (np.isnan(v) & ~np.isnan(best)))
        best, index = np.where(more, v, best), np.where(more, position, index)
    return best, index


OPS = (
    Op("Im2Col", ("x",), ("y",), _infer_im2col, _im2col, KernelAttributes),
    Op("Col2Im", ("x",), ("y",), _infer_col2im, _col2im, Col2ImAttributes),
    Op(
        "DeformIm2Col",
        ("x", "offset", "mask?"),
        ("y",),
        _infer_deform,
        _deform_im2col,
        DeformIm2ColAttributes,
    ),
    Op("MaxPoolIndices", ("x",), ("y", "indices"), _infer_indices, _max_indices, PoolAttributes, moves=True),
)
