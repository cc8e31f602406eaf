"""Pools: the maximum, mean or norm of sliding windows, channel by channel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present
from mace_core.ops.windows import KernelAttributes, Windows


@dataclass(frozen=True)
class PoolAttributes(KernelAttributes):
    """ceil: whether a last window may reach beyond the input."""

    ceil: bool = False


@dataclass(frozen=True)
class AveragePoolAttributes(PoolAttributes):
    """count_pad: whether padding counts as elements that are 0."""

    count_pad: bool = False


@dataclass(frozen=True)
class LpPoolAttributes(PoolAttributes):
    """p: the power of the norm."""

    p: int = 2


def _infer_any(inputs: Inputs, attrs: PoolAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype is not DType.BOOL, "x is bool, expected numbers")
    need(
        3 <= len(x.shape) <= 5,
        f"x has {len(x.shape)} axes, expected 3 to 5: batch, 1 to 3 spatial axes, channels",
    )
    windows = attrs.windows(len(x.shape) - 2)
    return [(x.dtype, (x.shape[0], *windows.count(x.shape[1:-1], attrs.ceil), x.shape[-1]))]


def _infer_float(inputs: Inputs, attrs: PoolAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"x is {x.dtype.value}, expected floats")
    return _infer_any(inputs, attrs)


def _infer_norm(inputs: Inputs, attrs: LpPoolAttributes) -> list[Spec]:
    need(attrs.p >= 1, f"p is {attrs.p}, expected at least 1")
    return _infer_float(inputs, attrs)


def _geometry(x: Array, attrs: PoolAttributes) -> tuple[Windows, Shape]:
    windows = Windows.of(attrs.kernel, attrs)
    return windows, windows.count(x.shape[1:-1], attrs.ceil)


def _max(x: Array, attrs: PoolAttributes) -> Array:
    """Take the maximum of each window; a window of padding only gives the lowest value of the type."""
    windows, out = _geometry(x, attrs)
    # Padding has the lowest value, so that it never wins over an element.
    lowest = -np.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
    padded = windows.pad_input(x, out, lowest)
    best = np.full((x.shape[0], *out, x.shape[-1]), lowest, x.dtype)
    for tap in windows.taps():
        np.maximum(best, windows.view_tap(padded, tap, out), out=best)
    return best


def _sum(x: Array, windows: Windows, out: Shape) -> Array:
    padded = windows.pad_input(x.astype(np.float64), out, 0.0)
    sums = np.zeros((x.shape[0], *out, x.shape[-1]))
    for tap in windows.taps():
        sums += windows.view_tap(padded, tap, out)
    return sums


def _average(x: Array, attrs: AveragePoolAttributes) -> Array:
    """Compute the mean of each window; padding counts as zeros only with `count_pad`.

    A window of padding only has mean 0.
    """
    windows, out = _geometry(x, attrs)
    # The divisors are the same sums over an image of ones. What a last window of `ceil` has beyond the
    # padding never counts, as in ONNX and PyTorch, so with `count_pad` the ones reach to the end of the
    # padding only.
    ones = np.ones((1, *x.shape[1:-1], 1))
    counted = windows
    if attrs.count_pad:
        sides = zip(windows.before, windows.after, strict=True)
        ones = np.pad(ones, [(0, 0), *sides, (0, 0)], constant_values=1.0)
        no_pads = (0,) * len(out)
        counted = replace(windows, before=no_pads, after=no_pads)
    counts = _sum(ones, counted, out)
    return np.asarray((_sum(x, windows, out) / np.maximum(counts, 1)).astype(x.dtype))


def _norm(x: Array, attrs: LpPoolAttributes) -> Array:
    """Compute (sum |x| ** p) ** (1 / p) of each window."""
    p = attrs.p
    windows, out = _geometry(x, attrs)
    return np.asarray((_sum(np.abs(x.astype(np.float64)) ** p, windows, out) ** (1 / p)).astype(x.dtype))


OPS = (
    Op("MaxPool", ("x",), ("y",), _infer_any, _max, PoolAttributes, moves=True),
    Op("AveragePool", ("x",), ("y",), _infer_float, _average, AveragePoolAttributes),
    Op("LpPool", ("x",), ("y",), _infer_norm, _norm, LpPoolAttributes),
)
