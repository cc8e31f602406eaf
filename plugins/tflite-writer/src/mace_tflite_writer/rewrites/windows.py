"""Paddings, crops and axes of windows that the format has no words for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mace_core.ir import Graph, Shape
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.ops.pool import AveragePoolAttributes, PoolAttributes
from mace_core.ops.windows import KernelAttributes, WindowAttributes, Windows
from mace_tflite_writer.padding import has_padding_mode, is_inside
from mace_tflite_writer.rewrites.site import Site, rewrite_sites


def separate_pads(graph: Graph) -> Graph:
    """Pad by a node of its own in front of convolutions and pools that the format has no padding for.

    Exact: a convolution sees zeros, a maximum the lowest number of its type. A mean that leaves elements of
    its windows out stays as it is, because a Pad would count.
    """
    return rewrite_sites(graph, _separate_pads)


def _separate_pads(site: Site) -> Sequence[str] | None:
    if site.node.op.name not in ("Conv", "MaxPool", "AveragePool"):
        return None
    windows, size, count = _windows(site)
    if isinstance(site.node.attrs, AveragePoolAttributes):
        if not site.node.attrs.count_pad or is_inside(windows, size, count):
            return None
    elif has_padding_mode(windows, size, count):
        return None
    # Behind the last window nothing is seen, so only what it reaches is padded.
    axes = zip(count, windows.strides, windows.extent, windows.before, size, strict=True)
    after = tuple(max((c - 1) * s + e - b - n, 0) for c, s, e, b, n in axes)
    if not any(windows.before) and not any(after):
        return None
    reaches_beyond = any(a > stated for a, stated in zip(after, windows.after, strict=True))
    if isinstance(site.node.attrs, AveragePoolAttributes) and reaches_beyond:
        return None  # what a last window of `ceil` has beyond the padding does not count, and a Pad would
    attrs = {"before": (0, *windows.before, 0), "after": (0, *after, 0), "value": _fill(site)}
    padded = site.inner("Pad", [site.node.inputs[0]], attrs, site.x.storage)
    zeros = (0,) * len(size)
    window_attrs = site.attributes(WindowAttributes)
    changed: dict[str, Any] = {"pads_before": zeros, "pads_after": zeros}
    if isinstance(window_attrs, PoolAttributes):
        # What the last window reaches is padded now, so that it counts without `ceil`.
        changed["ceil"] = False
    if isinstance(window_attrs, AveragePoolAttributes):
        # No padding is left that a mean could leave out.
        changed["count_pad"] = False
    return site.last(site.node.op.name, [padded, *site.node.inputs[1:]], replace(window_attrs, **changed))


def _windows(site: Site) -> tuple[Windows, Shape, Shape]:
    """Return the windows of a convolution or pool, the size that they slide over, and their number."""
    attrs = site.attributes(WindowAttributes)
    if isinstance(attrs, KernelAttributes):
        kernel = attrs.kernel
    else:
        w = site.input(1)
        assert w is not None
        kernel = w.shape[1:-1]
    return Windows.of(kernel, attrs), site.x.shape[1:-1], site.y.shape[1:-1]


def _fill(site: Site) -> float:
    """Return the number that padding adds: 0, or the lowest of the type for a maximum."""
    if site.node.op.name != "MaxPool":
        return 0.0
    if site.x.quant is not None:
        lowest = int(np.iinfo(site.x.dtype.numpy).min)
        return (lowest - site.x.quant.zero_point[0]) * site.x.quant.scale[0]
    return -np.inf if site.x.dtype.is_float else int(np.iinfo(site.x.dtype.numpy).min)


def separate_crops(graph: Graph) -> Graph:
    """Crop by a node of its own behind transposed convolutions whose cut the format has no padding for.

    Exact: the same sums, of which a Slice takes those that are left.
    """
    return rewrite_sites(graph, _separate_crops)


def _separate_crops(site: Site) -> Sequence[str] | None:
    if site.node.op.name != "ConvTranspose" or len(site.x.shape) != 4 or not site.is_refused:
        return None
    attrs, w = site.attributes(ConvTransposeAttributes), site.input(1)
    assert w is not None
    windows = Windows.of(w.shape[1:-1], attrs)
    axes = zip(site.x.shape[1:-1], windows.strides, windows.extent, strict=True)
    full = tuple((n - 1) * s + e for n, s, e in axes)
    out = site.y.shape[1:-1]
    # What the result shows behind the last kernel is the bias alone: room that output_padding makes.
    room = tuple(max(b + o - f, 0) for b, o, f in zip(windows.before, out, full, strict=True))
    zeros = (0,) * len(out)
    if not any(windows.before) and attrs.pads_after == zeros:
        return None
    uncut = replace(attrs, pads_before=zeros, pads_after=zeros, output_padding=room)
    uncropped = site.inner("ConvTranspose", site.node.inputs, uncut, site.y.storage)
    rank = len(site.y.shape)
    cut = {"starts": (0, *windows.before, 0), "sizes": site.y.shape, "steps": (1,) * rank}
    return site.last("Slice", [uncropped], cut)


ROWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def rows_as_images(graph: Graph) -> Graph:
    """Compute windows over one axis as windows over images of one row. Exact."""
    return rewrite_sites(graph, _rows_as_images)


def _rows_as_images(site: Site) -> Sequence[str] | None:
    if site.node.op.name not in ROWS or len(site.x.shape) != 3:
        return None
    inputs = list(site.node.inputs)
    inputs[0] = _insert_row(site, 0)
    if site.node.op.name in ("Conv", "ConvTranspose"):
        w = site.input(1)
        if w is None or w.name not in site.builder.weights:
            return None
        array = site.builder.weights[w.name]
        # Scales lie along the first axis, if along any, which stays where it is.
        if w.quant is not None and w.quant.axis not in (None, 0):
            return None
        inputs[1] = site.builder.weight(f"{w.name}/image", array[:, None], w.quant)
    image = (site.y.shape[0], 1, *site.y.shape[1:])
    result = site.inner(site.node.op.name, inputs, _image_attributes(site), site.y.storage)
    assert site.builder.shape(result) == image
    return site.last("Reshape", [result], {"shape": site.y.shape})


def _insert_row(site: Site, index: int) -> str:
    shape = site.builder.shape(site.node.inputs[index])
    row = {"shape": (shape[0], 1, *shape[1:])}
    return site.inner("Reshape", [site.node.inputs[index]], row, site.x.storage)


def _image_attributes(site: Site) -> WindowAttributes:
    attrs = site.attributes(WindowAttributes)
    changed: dict[str, Any] = {
        "strides": (1, *attrs.strides),
        "dilations": (1, *attrs.dilations),
        "pads_before": (0, *attrs.pads_before),
        "pads_after": (0, *attrs.pads_after),
    }
    if isinstance(attrs, KernelAttributes):
        changed["kernel"] = (1, *attrs.kernel)
    if isinstance(attrs, ConvTransposeAttributes):
        changed["output_padding"] = (0, *attrs.output_padding)
    return replace(attrs, **changed)
