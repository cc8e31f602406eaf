"""Conv: sliding dot products over 1 to 3 spatial axes, clamped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Tensor
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, same_dtype
from mace_core.ops.windows import Ints, WindowAttributes, Windows


@dataclass(frozen=True)
class ClampAttributes(Attributes):
    """The attributes of an op that clamps its results to `low` ... `high`, as an activation would."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def is_clamped(self) -> bool:
        """Whether either limit is finite."""
        return self.low != -math.inf or self.high != math.inf


@dataclass(frozen=True)
class ConvAttributes(ClampAttributes, WindowAttributes):
    """group: number of parts that the channels divide into, each with filters of its own."""

    group: int = 1


def check_operands(inputs: Inputs, attrs: ConvAttributes) -> tuple[Tensor, Tensor, Windows]:
    """Return input, filters and windows of a convolution or its transpose.

    x is [N, *spatial, I], w [O, *kernel, I / group], bias [O].
    Raises OpError if they do not fit together.
    """
    x, w = inputs[0], inputs[1]
    bias = inputs[2] if len(inputs) > 2 else None
    assert x is not None
    assert w is not None
    same_dtype(inputs)
    need(x.dtype.is_float, f"x is {x.dtype.value}, expected floats")
    need(
        3 <= len(x.shape) <= 5,
        f"x has {len(x.shape)} axes, expected 3 to 5: batch, 1 to 3 spatial axes, channels",
    )
    need(
        len(w.shape) == len(x.shape),
        f"w has {len(w.shape)} axes, x has {len(x.shape)}; they must be the same",
    )
    group, channels, results = attrs.group, x.shape[-1], w.shape[0]
    need(group >= 1, f"group is {group}, expected at least 1")
    need(channels >= 1, "x has no channels, expected at least 1")
    need(channels % group == 0, f"{channels} input channels do not divide into {group} groups")
    need(
        w.shape[-1] * group == channels,
        f"w takes {w.shape[-1]} channels, expected {channels // group} of each of {group} groups",
    )
    need(
        results >= 1 and results % group == 0, f"{results} output channels do not divide into {group} groups"
    )
    need(
        bias is None or bias.shape == (results,),
        f"bias has shape {list(bias.shape) if bias else None}, expected [{results}]",
    )
    need(attrs.low <= attrs.high, f"low {attrs.low} is above high {attrs.high}")
    return x, w, Windows.of(w.shape[1:-1], attrs)


def _infer(inputs: Inputs, attrs: ConvAttributes) -> list[Spec]:
    x, w, windows = check_operands(inputs, attrs)
    return [(x.dtype, (x.shape[0], *windows.count(x.shape[1:-1]), w.shape[0]))]


def grouped_product(x: Array, w: Array) -> Array:
    """Multiply [..., G, I] by [G, O, I] over I: [..., G, O]."""
    # One channel for each group (depthwise): a matrix product of depth 1 is a product element by element,
    # which numpy computes many times faster than a batch of tiny matrices.
    if x.shape[-1] == 1:
        return np.asarray(x * w[..., 0])
    # Every length is stated: NumPy cannot tell the one that is left of a batch without an image.
    flat = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]).transpose(1, 0, 2)
    product = np.matmul(flat, w.transpose(0, 2, 1))
    return np.asarray(product.transpose(1, 0, 2)).reshape(*x.shape[:-1], w.shape[1])


def add_bias_and_clamp(
    sums: Array, bias: Array | None, attrs: ClampAttributes, dtype: np.dtype[Any]
) -> Array:
    """Add the bias, clamp, and convert to the type of the result."""
    biased = sums if bias is None else sums + bias
    return np.asarray(np.clip(biased, attrs.low, attrs.high).astype(dtype))


def _conv(x: Array, w: Array, bias: Array | None = None, *, attrs: ConvAttributes) -> Array:
    """Add up a matrix product for each position of the kernel, in float64."""
    windows = Windows.of(w.shape[1:-1], attrs)
    out = windows.count(x.shape[1:-1])
    padded = windows.pad_input(x.astype(np.float64), out, 0.0)
    group = attrs.group
    filters = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    # One product for each position of the kernel needs no copy of the windows (im2col), whose memory would be
    # the kernel's size times that of the input.
    sums = np.zeros((x.shape[0], *out, group, filters.shape[1]))
    grouped = (x.shape[0], *out, group, x.shape[-1] // group)
    for tap in windows.taps():
        view = windows.view_tap(padded, tap, out)
        sums += grouped_product(view.reshape(grouped), take_tap(filters, tap))
    return add_bias_and_clamp(sums.reshape(*sums.shape[:-2], w.shape[0]), bias, attrs, x.dtype)


def take_tap(filters: Array, tap: Ints) -> Array:
    """Take one position of [G, O, *kernel, I] filters: [G, O, I]."""
    index: tuple[Any, ...] = (slice(None), slice(None), *tap)
    return np.asarray(filters[index])


OPS = (Op("Conv", ("x", "w", "bias?"), ("y",), _infer, _conv, ConvAttributes),)
