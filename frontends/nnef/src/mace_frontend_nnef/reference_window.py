"""Computes operations that slide a window by numpy, as NNEF 1.0.5 defines them (section 4.3)."""

# Operands and attributes have the names of the specification, such as input and filter.
# ruff: noqa: A002, A006

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array

Pairs = Sequence[tuple[int, int]]
MODES = {"replicate": "edge", "reflect": "reflect", "reflect-even": "symmetric"}


def _paddings(size: Sequence[int], kernel: Sequence[int], attribs: Mapping[str, Any]) -> Pairs:
    """Return the stated paddings; without them those for ceil(size / stride) results."""
    if attribs.get("padding"):
        return [tuple(pair) for pair in attribs["padding"]]
    pairs = []
    for n, k, s, d in zip(size, kernel, _strides(kernel, attribs), _dilations(kernel, attribs), strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        pairs.append((total // 2, total - total // 2))
    return pairs


def _strides(kernel: Sequence[int], attribs: Mapping[str, Any]) -> Sequence[int]:
    return attribs.get("stride") or [1] * len(kernel)


def _dilations(kernel: Sequence[int], attribs: Mapping[str, Any]) -> Sequence[int]:
    return attribs.get("dilation") or [1] * len(kernel)


def _write_border(x: Array, pairs: Pairs, border: str, outside: float) -> Array:
    """Return an array with its border written out.

    outside: the element of a border that is ignored, which the function that follows passes over.
    """
    if border == "ignore":
        return np.pad(x, pairs, constant_values=outside)
    if border == "constant":
        return np.pad(x, pairs)
    return np.asarray(np.pad(x, pairs, mode=MODES[border]))  # type: ignore[call-overload]


def _windows(padded: Array, kernel: Sequence[int], attribs: Mapping[str, Any]) -> Array:
    """Return the windows over all axes as [*out, *kernel]."""
    strides, dilations = _strides(kernel, attribs), _dilations(kernel, attribs)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(padded, reach)
    steps = [slice(None, None, s) for s in (*strides, *dilations)]
    return views[tuple(steps)]


def _pool(function: Callable[..., Array], outside: float) -> Callable[..., Array]:
    def compute(input: Array, size: Sequence[int], border: str, **attribs: Any) -> Array:
        padded = _write_border(input, _paddings(input.shape, size, attribs), border, outside)
        axes = tuple(range(input.ndim, 2 * input.ndim))
        return function(_windows(padded, size, attribs), axis=axes)

    return compute


def _box(input: Array, size: Sequence[int], border: str, normalize: bool, **attribs: Any) -> Array:
    # NaN marks what lies outside, so that nanmean divides by the number of elements inside.
    pool = _pool(np.nanmean if normalize else np.nansum, np.nan)
    return pool(input, size, border, **attribs)


def _avg_pool(input: Array, size: Sequence[int], border: str, **attribs: Any) -> Array:
    return _box(input, size, border, True, **attribs)


def _rms_pool(input: Array, size: Sequence[int], border: str, **attribs: Any) -> Array:
    return np.sqrt(_box(input**2, size, border, True, **attribs))


def _conv(input: Array, filter: Array, bias: Array, border: str, groups: int, **attribs: Any) -> Array:
    kernel, groups = filter.shape[2:], groups or input.shape[1]
    pairs = [(0, 0), (0, 0), *_paddings(input.shape[2:], kernel, attribs)]
    padded = _write_border(input, pairs, border, 0.0)
    results = []
    for images, filters in zip(
        np.split(padded, groups, axis=1), np.split(filter, groups, axis=0), strict=True
    ):
        steps = {key: [1, 1, *attribs[key]] for key in ("stride", "dilation") if attribs.get(key)}
        views = _windows(images, (1, images.shape[1], *kernel), steps)
        rank = len(kernel)
        # [N, 1, *out, 1, C, *kernel] with [O, C, *kernel]
        axes = list(range(rank + 3, 2 * rank + 4))
        sums = np.tensordot(views, filters, (axes, list(range(1, rank + 2))))
        results.append(np.moveaxis(sums.reshape(sums.shape[0], *sums.shape[2 : rank + 2], -1), -1, 1))
    return np.concatenate(results, axis=1) + _channels(bias, input.ndim)


def _channels(bias: Array, rank: int) -> Array:
    """Return a bias [1, O], or a number, with the axes that broadcast it over a tensor of this rank."""
    return bias.reshape(*bias.shape, *(1,) * (rank - bias.ndim)) if bias.ndim else bias


def _separable_conv(input: Array, bias: Array, border: str, groups: int, **others: Any) -> Array:
    planes, points = others.pop("plane_filter"), others.pop("point_filter")
    filtered = _conv(input, planes, np.zeros(()), border, 0, **others)
    return _conv(filtered, points, bias, "constant", groups or filtered.shape[1])


def _deconv(input: Array, filter: Array, bias: Array, groups: int, **attribs: Any) -> Array:
    """Add each element of the input, times the filter, to what the convolution would read for it."""
    output_shape = attribs["output_shape"]
    kernel, groups = filter.shape[2:], groups or input.shape[1]
    strides, dilations = _strides(kernel, attribs), _dilations(kernel, attribs)
    size = input.shape[2:]
    full = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, strides, kernel, dilations, strict=True)
    ]
    if attribs.get("padding"):
        pairs = attribs["padding"]
        out = list(output_shape[2:]) or [f - low - high for f, (low, high) in zip(full, pairs, strict=True)]
    else:
        out = list(output_shape[2:]) or [n * s for n, s in zip(size, strides, strict=True)]
        totals = [max(f - o, 0) for f, o in zip(full, out, strict=True)]
        pairs = [(t // 2, t - t // 2) for t in totals]
    extent = [max(f, low + o) for f, (low, _), o in zip(full, pairs, out, strict=True)]
    width = filter.shape[1]
    sums = np.zeros((input.shape[0], groups * width, *extent))
    grouped = np.split(input, groups, axis=1)
    for tap in product(*(range(k) for k in kernel)):
        positions = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, size, strides, strict=True)
        )
        for g, images in enumerate(grouped):
            element: Any = (slice(None), slice(None), *tap)
            taps = np.split(filter, groups, axis=0)[g][element]
            added = np.moveaxis(np.tensordot(images, taps, ([1], [0])), -1, 1)
            sums[(slice(None), slice(g * width, (g + 1) * width), *positions)] += added
    cut = tuple(slice(low, low + o) for (low, _), o in zip(pairs, out, strict=True))
    return sums[(slice(None), slice(None), *cut)] + _channels(bias, input.ndim)


def _local(x: Array, size: Sequence[int]) -> Array:
    return _box(x, size, "constant", True)


def _local_response(input: Array, size: Sequence[int], alpha: float, beta: float, bias: float) -> Array:
    return input / (bias + alpha * _local(input**2, size)) ** beta


def _local_variance(input: Array, size: Sequence[int], bias: float, epsilon: float) -> Array:
    return input / np.maximum(np.sqrt(_local(input**2, size)) + bias, epsilon)


def _local_contrast(input: Array, size: Sequence[int], bias: float, epsilon: float) -> Array:
    return _local_variance(input - _local(input, size), size, bias, epsilon)


def _area_downsample(input: Array, factor: Sequence[int]) -> Array:
    size = [1, 1, *factor]
    return _box(input, size, "ignore", True, stride=size, padding=[(0, 0)] * input.ndim)


WINDOWS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "conv": _conv,
        "separable_conv": _separable_conv,
        "deconv": _deconv,
        "max_pool": _pool(np.max, -np.inf),
        "avg_pool": _avg_pool,
        "rms_pool": _rms_pool,
        "box": _box,
        "local_response_normalization": _local_response,
        "local_mean_normalization": lambda input, size: input - _local(input, size),
        "local_variance_normalization": _local_variance,
        "local_contrast_normalization": _local_contrast,
        "area_downsample": _area_downsample,
    }
)
"""Operation -> the function that computes it from operands and attributes by their names in NNEF."""
