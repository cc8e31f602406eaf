"""Im2Col, Col2Im, DeformIm2Col, MaxPoolIndices: windows taken apart, put together, or searched.

X is [N, *spatial, C].

What one window sees is a row [*kernel, C], its last axis C.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, DType
from mace_core.ops.grid_sample import held
from mace_core.ops.op import Op, Spec
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.shapes import Inputs, need, present
from mace_core.ops.windows import Ints, KernelAttributes, Windows, need_integers


@dataclass(frozen=True)
class Col2ImAttributes(KernelAttributes):
    """size: of the image, along each spatial axis."""

    size: Ints


@dataclass(frozen=True)
class DeformIm2ColAttributes(KernelAttributes):
    """groups: parts of the channels, each with offsets of its own."""

    groups: int = 1


def _infer_im2col(inputs: Inputs, attrs: KernelAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    count = attrs.windows(len(x.shape) - 2).count(x.shape[1:-1])
    return [(x.dtype, (x.shape[0], *count, prod(attrs.kernel) * x.shape[-1]))]


def _im2col(x: Array, attrs: KernelAttributes) -> Array:
    """Zeros where a window sees the padding."""
    windows = Windows.of(attrs.kernel, attrs)
    count = windows.count(x.shape[1:-1])
    padded = windows.padded(x, count, 0)
    return np.concatenate([windows.seen(padded, tap, count) for tap in windows.taps()], -1)


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
    """Add up what windows that overlap hold for the same element."""
    windows = Windows.of(attrs.kernel, attrs)
    size, count, channels = attrs.size, x.shape[1:-1], x.shape[-1] // prod(windows.kernel)
    wide = np.float64 if x.dtype.kind == "f" else x.dtype
    padded = windows.padded(np.zeros((x.shape[0], *size, channels), wide), count, 0)
    for i, tap in enumerate(windows.taps()):
        seen = windows.seen(padded, tap, count)
        seen += x[..., i * channels : (i + 1) * channels]
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


def _bilinear(x: Array, at: tuple[Array, Array]) -> Array:
    """Sample x [N, H, W, C] at places [N, oh, ow] of every image, zeros around it."""
    batch = np.arange(x.shape[0]).reshape(-1, 1, 1)
    floors = [np.floor(v) for v in at]
    total = np.zeros((*at[0].shape, x.shape[-1]))
    for down in (0, 1):
        for across in (0, 1):
            where = [f + step for f, step in zip(floors, (down, across), strict=True)]
            weights = [1 - abs(v - w) for v, w in zip(at, where, strict=True)]
            inside = np.logical_and.reduce(
                [(w >= 0) & (w < n) for w, n in zip(where, x.shape[1:3], strict=True)]
            )
            row, column = (
                np.clip(w, 0, n - 1).astype(np.int64) for w, n in zip(where, x.shape[1:3], strict=True)
            )
            total += np.where(
                inside[..., None], x[batch, row, column] * (weights[0] * weights[1])[..., None], 0
            )
    return total


def _deform_im2col(
    x: Array, offset: Array, mask: Array | None = None, *, attrs: DeformIm2ColAttributes
) -> Array:
    """Im2Col of which each sample lies `offset` (y, x) away, and counts `mask` times (X. Zhu et al., "Deformable ConvNets v2").

    Each of the groups of channels has offsets [*kernel, 2] and a mask [*kernel] of its own.
    """
    windows = Windows.of(attrs.kernel, attrs)
    groups = attrs.groups
    n, height, width = offset.shape[:3]
    taps = prod(windows.kernel)
    moved = offset.reshape(n, height, width, groups, taps, 2).astype(np.float64)
    channels = x.shape[-1] // groups
    y = np.empty((n, height, width, taps, x.shape[-1]))
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    for i, tap in enumerate(windows.taps()):
        start = [t * d - b for t, d, b in zip(tap, windows.dilations, windows.before, strict=True)]
        for g in range(groups):
            at = tuple(
                held(place * windows.strides[a] + start[a] + moved[:, :, :, g, i, a])
                for a, place in enumerate((rows, columns))
            )
            part = _bilinear(x[..., g * channels : (g + 1) * channels], (at[0], at[1]))
            part = part if mask is None else part * mask[..., g * taps + i, None]
            y[..., i, g * channels : (g + 1) * channels] = part
    return y.reshape(n, height, width, -1).astype(x.dtype)


def _infer_indices(inputs: Inputs, attrs: PoolAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype is not DType.BOOL, "x is bool, expected numbers")
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    windows = attrs.windows(len(x.shape) - 2)
    shape = (x.shape[0], *windows.count(x.shape[1:-1], attrs.ceil), x.shape[-1])
    return [(x.dtype, shape), (DType.I64, shape)]


def _max_indices(x: Array, attrs: PoolAttributes) -> tuple[Array, Array]:
    """MaxPool, and where in its flat image [*spatial] each maximum is: the first of equals, a NaN before all, -1 for nothing."""
    windows = Windows.of(attrs.kernel, attrs)
    out = windows.count(x.shape[1:-1], attrs.ceil)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = windows.padded(x, out, least)
    places = np.arange(prod(x.shape[1:-1]), dtype=np.int64).reshape(1, *x.shape[1:-1], 1)
    where = windows.padded(np.broadcast_to(places, x.shape), out, -1)
    best = np.full((x.shape[0], *out, x.shape[-1]), least, x.dtype)
    index = np.full(best.shape, -1, np.int64)
    for tap in windows.taps():
        v, at = windows.seen(padded, tap, out), windows.seen(where, tap, out)
        more = (at >= 0) & ((index < 0) | (v > best) | (np.isnan(v) & ~np.isnan(best)))
        best, index = np.where(more, v, best), np.where(more, at, index)
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
