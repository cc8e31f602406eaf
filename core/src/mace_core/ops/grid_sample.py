"""GridSample: interpolated elements at coordinates that are known only at run time.

Coordinates are computed in double precision and limited to 2**24 elements around the first; a NaN lies before
the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present

Mode = Literal["linear", "nearest", "cubic"]
Padding = Literal["zeros", "border", "reflection"]
FAR = float(1 << 24)
"""The farthest coordinate; beyond it, floats next to each other are more than one element apart."""

CUBIC_A = -0.75
"""The free coefficient of the cubic kernel (R. G. Keys, "Cubic convolution interpolation", 1981)."""


@dataclass(frozen=True)
class GridSampleAttributes(Attributes):
    """align_corners: whether -1 and 1 are the centers of the outermost elements, not their edges."""

    mode: Mode = "linear"
    padding: Padding = "zeros"
    align_corners: bool = False


def _infer(inputs: Inputs, attrs: GridSampleAttributes) -> list[Spec]:
    x, grid = present(inputs)
    axes = len(x.shape) - 2
    need(1 <= axes <= 3, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    need(
        attrs.mode == "nearest" or x.dtype.is_float,
        f"x is of type {x.dtype.value}; it must be a float type to be interpolated",
    )
    need(grid.dtype is DType.F32, f"grid is of type {grid.dtype.value}; it must be f32")
    fits = len(grid.shape) == axes + 2 and grid.shape[0] == x.shape[0] and grid.shape[-1] == axes
    need(fits, f"grid has shape {list(grid.shape)}; it must be [{x.shape[0]}, {axes} axes, {axes}]")
    need(0 not in x.shape[1:-1] or 0 in grid.shape, f"x {list(x.shape)} has no elements to sample")
    return [(x.dtype, (*grid.shape[:-1], x.shape[-1]))]


def limit_coordinates(v: Array) -> Array:
    """Clamp coordinates to -FAR ... FAR; a NaN becomes -FAR."""
    # A conversion of NaN or of a huge float to an integer is undefined in C, so kernels must never meet one.
    return np.asarray(np.clip(np.where(np.isnan(v), -FAR, v), -FAR, FAR))


def _reflect(v: Array, low: float, high: float) -> Array:
    """Reflect coordinates at the borders, as often as it takes for them to lie between."""
    span = high - low
    if span <= 0:
        return np.zeros_like(v)
    # By the number of reflections instead of a loop, because a coordinate may lie 2**24 elements outside.
    # After an even number it counts from the border that it passed, after an odd number from the other one.
    beyond = np.maximum(low - v, v - high)
    turns = np.floor(beyond / span)
    rest = beyond - turns * span
    from_low = (v < low) == (turns % 2 == 0)
    back = np.where(from_low, low + rest, high - rest)
    return np.where((v < low) | (v > high), back, v)


def _apply_padding(v: Array, size: int, attrs: GridSampleAttributes) -> Array:
    low, high = (0.0, size - 1.0) if attrs.align_corners else (-0.5, size - 0.5)
    if attrs.padding == "border":
        return np.where((v < low) | (v > high), np.clip(v, 0, size - 1), v)
    return _reflect(v, low, high) if attrs.padding == "reflection" else v


def _weights(t: Array, mode: Mode) -> list[Array]:
    """Return the weight of each tap.  t: the distance from the first tap, from the second of a cubic."""
    if mode == "linear":
        return [1 - t, t]
    far, near = ([t + 1, 2 - t], [t, 1 - t])
    outer = [((CUBIC_A * d - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A for d in far]
    inner = [((CUBIC_A + 2) * d - (CUBIC_A + 3)) * d * d + 1 for d in near]
    return [outer[0], inner[0], inner[1], outer[1]]


def _taps(g: Array, size: int, attrs: GridSampleAttributes) -> list[tuple[Array, Array, Array]]:
    """Return for each tap of one axis its positions, whether they are inside, and its weights."""
    mode = attrs.mode
    wide = g.astype(np.float64) + 1
    # From -1 ... 1 to elements (the two conventions of align_corners).
    v = limit_coordinates(wide * (size - 1) / 2 if attrs.align_corners else (wide * size - 1) / 2)
    # A cubic keeps its place outside, as in PyTorch and ONNX Runtime; the elements that it looks at move.
    if mode != "cubic":
        v = _apply_padding(np.rint(v) if mode == "nearest" else v, size, attrs)
    first = np.floor(v)
    weights = [np.ones_like(v)] if mode == "nearest" else _weights(v - first, mode)
    taps = []
    for i, weight in enumerate(weights):
        tap = first + (i - 1 if mode == "cubic" else i)
        tap = np.clip(tap, 0, size - 1) if attrs.padding == "border" else _apply_padding(tap, size, attrs)
        inside = (tap >= 0) & (tap <= size - 1)
        taps.append((np.clip(tap, 0, size - 1).astype(np.int64), inside, weight))
    return taps


def _grid_sample(x: Array, grid: Array, attrs: GridSampleAttributes) -> Array:
    axes = x.ndim - 2
    # A coordinate is written (x, y, z): its last number belongs to the first spatial axis.
    taps = [_taps(grid[..., axes - 1 - i], x.shape[1 + i], attrs) for i in range(axes)]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * axes)
    if attrs.mode == "nearest":
        key, inside = tuple(t[0][0] for t in taps), np.logical_and.reduce([t[0][1] for t in taps])
        return np.asarray(np.where(inside[..., None], x[(batch, *key)], np.zeros((), x.dtype)))
    total = np.zeros((*grid.shape[:-1], x.shape[-1]))
    for chosen in product(*taps):
        inside = np.logical_and.reduce([c[1] for c in chosen])
        weight = np.multiply.reduce([c[2] for c in chosen])
        total += np.where(inside[..., None], x[(batch, *(c[0] for c in chosen))] * weight[..., None], 0)
    return total.astype(x.dtype)


OPS = (
    Op(
        "GridSample",
        ("x", "grid"),
        ("y",),
        _infer,
        _grid_sample,
        GridSampleAttributes,
    ),
)
