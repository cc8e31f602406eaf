"""ConvTranspose: the transpose of Conv as a linear map.

Every input pixel adds a scaled kernel to the output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array, Shape
from mace_core.ops.conv import ConvAttributes, add_bias_and_clamp, check_operands, grouped_product, take_tap
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need
from mace_core.ops.windows import Ints, Windows, need_integers


@dataclass(frozen=True, kw_only=True)
class ConvTransposeAttributes(ConvAttributes):
    """output_padding: rows that are added to the output after each spatial axis."""

    output_padding: Ints


def _infer(inputs: Inputs, attrs: ConvTransposeAttributes) -> list[Spec]:
    x, w, windows = check_operands(inputs, attrs)
    extra = attrs.output_padding
    need_integers("output_padding", extra, len(windows.kernel))
    need(min(extra) >= 0, f"output_padding {list(extra)} must be at least 0 along each axis")
    out = transposed_size(windows, x.shape[1:-1], extra)
    need(min(out) >= 1, f"its output would have spatial size {list(out)}; the pads cut off everything")
    return [(x.dtype, (x.shape[0], *out, w.shape[0]))]


def transposed_size(windows: Windows, spatial: Shape, extra: Ints) -> Shape:
    """Return the spatial size of the output: stride (in - 1) + extent + extra - pads, as ONNX defines it."""
    axes = zip(spatial, windows.strides, windows.extent, extra, windows.before, windows.after, strict=True)
    return tuple((n - 1) * s + e + more - b - a for n, s, e, more, b, a in axes)


def _conv_transpose(
    x: Array, w: Array, bias: Array | None = None, *, attrs: ConvTransposeAttributes
) -> Array:
    """Add a matrix product for each position of the kernel into the output, in float64, and crop the pads."""
    windows = Windows.of(w.shape[1:-1], attrs)
    spatial = x.shape[1:-1]
    out = transposed_size(windows, spatial, attrs.output_padding)
    group = attrs.group
    filters = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    # The sums cover what the windows reach and what the output shows: pads crop the first, output_padding
    # makes the second larger.
    reach = transposed_size(
        replace(windows, before=(0,) * len(out), after=(0,) * len(out)), spatial, (0,) * len(out)
    )
    uncut = (max(o + b, r) for o, b, r in zip(out, windows.before, reach, strict=True))
    sums = np.zeros((x.shape[0], *uncut, w.shape[0]))
    grouped = x.astype(np.float64).reshape(*x.shape[:-1], group, x.shape[-1] // group)
    for tap in windows.taps():
        product = grouped_product(grouped, take_tap(filters, tap))
        view = windows.view_tap(sums, tap, spatial)
        view += product.reshape(view.shape)
    cut = tuple(slice(b, b + o) for b, o in zip(windows.before, out, strict=True))
    return add_bias_and_clamp(sums[(slice(None), *cut)], bias, attrs, x.dtype)


OPS = (
    Op(
        "ConvTranspose",
        ("x", "w", "bias?"),
        ("y",),
        _infer,
        _conv_transpose,
        ConvTransposeAttributes,
    ),
)
