"""Nodes that become several smaller ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from mace_core.ir import Graph, Quant, Shape
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.ops.windows import Windows
from mace_tflite_writer.rewrites.kernel_blocks import kernels_by_blocks
from mace_tflite_writer.rewrites.site import Site, rewrite_sites


def split_groups(graph: Graph) -> Graph:
    """Compute a convolution in groups as one for each group, where the format has none such.

    Exact: the groups share no sum.
    """
    return rewrite_sites(graph, _split_groups)


def _split_groups(site: Site) -> Sequence[str] | None:
    if site.node.op.name not in ("Conv", "ConvTranspose") or not site.is_refused:
        return None
    attrs = site.attributes(ConvAttributes)
    weights = [_parts(site, index, attrs.group) for index in (1, 2)]
    if attrs.group == 1 or weights[0] is None or weights[1] is None:
        return None
    channels = site.x.shape[-1] // attrs.group
    names = [site.builder.reserve_output(f"{site.y.name}/part", site.x.storage) for _ in range(attrs.group)]
    names = [f"{name}{i}" for i, name in enumerate(names)]
    if site.x.storage is not None:
        site.builder.storages.update(dict.fromkeys(names, site.x.storage))
    sizes = {"axis": len(site.x.shape) - 1, "sizes": (channels,) * attrs.group}
    parts = site.builder.add("Split", [site.node.inputs[0]], sizes, outputs=names, like=site.node)
    results = [
        site.inner(site.node.op.name, [part, *operands], replace(attrs, group=1), site.y.storage)
        for part, *operands in zip(parts, *(w for w in weights if w), strict=True)
    ]
    return site.last("Concat", results, {"axis": len(site.y.shape) - 1})


def _parts(site: Site, index: int, count: int) -> list[str] | None:
    """Return the parts of weights or bias along their first axis; [] if absent, None if they are computed."""
    tensor = site.input(index)
    if tensor is None:
        return []
    array = site.builder.weights.get(tensor.name)
    if array is None or (tensor.quant is not None and tensor.quant.axis not in (None, 0)):
        return None
    quants = _split_quant(tensor.quant, count)
    return [
        site.builder.weight(f"{tensor.name}/part", part, quant)
        for part, quant in zip(np.split(array, count), quants, strict=True)
    ]


def _split_quant(quant: Quant | None, count: int) -> list[Quant | None]:
    if quant is None or quant.axis is None:
        return [quant] * count
    size = len(quant.scale) // count
    cuts = [slice(i * size, (i + 1) * size) for i in range(count)]
    return [Quant(quant.scale[cut], quant.zero_point[cut], 0) for cut in cuts]


def splits_as_slices(graph: Graph) -> Graph:
    """Take each part of a Split whose parts differ in length by a Slice, for chips without SPLIT_V. Exact."""
    return rewrite_sites(graph, _split_as_slices)


def _split_as_slices(site: Site) -> Sequence[str] | None:
    if site.node.op.name != "Split":
        return None
    attrs, shape = site.attributes(SplitAttributes), site.x.shape
    # A Slice of an empty part is one that no operator of a chip takes either.
    if attrs.is_even or 0 in attrs.sizes:
        return None
    axis, results, start = attrs.axis % len(shape), [], 0
    for output, length in zip(site.node.outputs, attrs.sizes, strict=True):
        starts, sizes = [0] * len(shape), list(shape)
        starts[axis], sizes[axis] = start, length
        start += length
        cut = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(shape)}
        results.append(
            site.builder.one("Slice", [site.node.inputs[0]], cut, outputs=[output], like=site.node)
        )
    return results


def split_kernels(graph: Graph, largest: int) -> Graph:
    """Compute convolutions, and maxima, whose kernel is longer than `largest` by smaller kernels.

    A maximum of maxima is exact. A sum of partial sums differs by the rounding of floats alone. Partial sums
    of stored integers would each be rounded: their convolutions go over blocks instead (`kernels_by_blocks`),
    and those that cannot stay as they are.
    """
    if largest < 2:
        raise ValueError(f"kernels cannot be split to {largest}; the smallest that cover others are of 2")
    # A maximum is split in two, the first of the largest size, until the second is small enough.
    while any(_is_large_pool(node.op.name, node.attrs, largest) for node in graph.nodes):
        graph = rewrite_sites(graph, lambda site: _split_pool(site, largest))
    graph = kernels_by_blocks(graph, largest, only_stored=True)
    return rewrite_sites(graph, lambda site: _split_conv(site, largest))


def _is_large_pool(op: str, attrs: object, largest: int) -> bool:
    return (
        op == "MaxPool"
        and isinstance(attrs, PoolAttributes)
        and max(attrs.kernel) > largest
        and set(attrs.dilations) == {1}
    )


def _split_pool(site: Site, largest: int) -> Sequence[str] | None:
    if not _is_large_pool(site.node.op.name, site.node.attrs, largest):
        return None
    attrs = site.attributes(PoolAttributes)
    first = tuple(min(k, largest) for k in attrs.kernel)
    rest = tuple(k - f + 1 for k, f in zip(attrs.kernel, first, strict=True))
    rank = len(attrs.kernel)
    windows = Windows.of(attrs.kernel, attrs)
    axes = zip(site.y.shape[1:-1], windows.strides, windows.extent, windows.before, strict=True)
    reach = [(c - 1) * s + e - b for c, s, e, b in axes]
    # All padding is in front of the first: behind it, a window is a maximum already. A window of padding
    # alone gives the lowest number, which never wins.
    after = tuple(max(r - n, 0) for r, n in zip(reach, site.x.shape[1:-1], strict=True))
    dense = replace(attrs, kernel=first, strides=(1,) * rank, pads_after=after, ceil=False)
    inner = site.inner("MaxPool", [site.node.inputs[0]], dense, site.x.storage)
    zeros = (0,) * rank
    behind = replace(attrs, kernel=rest, pads_before=zeros, pads_after=zeros, ceil=False)
    result = site.inner("MaxPool", [inner], behind, site.y.storage)
    # Without `ceil` a last window that sees padding the old node had not may be one too many.
    shape = site.builder.shape(result)
    if shape == site.y.shape:
        return site.last("Identity", [result])
    cut = {"starts": (0,) * len(shape), "sizes": site.y.shape, "steps": (1,) * len(shape)}
    return site.last("Slice", [result], cut)


def _split_conv(site: Site, largest: int) -> Sequence[str] | None:
    w = site.input(1)
    if site.node.op.name != "Conv" or site.x.quant is not None or w is None or max(w.shape[1:-1]) <= largest:
        return None
    array = site.builder.weights.get(w.name)
    if array is None:
        return None
    attrs = site.attributes(ConvAttributes)
    windows = Windows.of(w.shape[1:-1], attrs)
    padded = _pad_for(site, windows)
    rank = len(windows.kernel)
    # Only the whole sum may be clamped, by the Clip behind the last part.
    plain = replace(attrs, pads_before=(0,) * rank, pads_after=(0,) * rank, low=-math.inf, high=math.inf)
    total = ""
    for place, size in _tiles(windows.kernel, largest):
        tile = array[(slice(None), *(slice(p, p + s) for p, s in zip(place, size, strict=True)))]
        part = _slice_for(site, padded, windows, place, size)
        # The first part brings the bias for all of them.
        bias = site.node.inputs[2:] if not total else ()
        weights = site.builder.weight(f"{w.name}/tile", tile)
        sums = site.inner("Conv", [part, weights, *bias], plain)
        total = site.inner("Add", [total, sums]) if total else sums
    return site.last("Clip", [total], {"min": attrs.low, "max": attrs.high})


def _tiles(kernel: Shape, largest: int) -> Iterator[tuple[Shape, Shape]]:
    """Iterate over the parts of a kernel: where each begins, and its size."""
    for place in product(*(range(0, k, largest) for k in kernel)):
        yield place, tuple(min(largest, k - p) for k, p in zip(kernel, place, strict=True))


def _pad_for(site: Site, windows: Windows) -> str:
    """Pad the input so that every window lies inside."""
    axes = zip(site.y.shape[1:-1], windows.strides, windows.extent, windows.before, strict=True)
    reach = [(c - 1) * s + e - b for c, s, e, b in axes]
    after = tuple(max(r - n, 0) for r, n in zip(reach, site.x.shape[1:-1], strict=True))
    if not any(windows.before) and not any(after):
        return site.node.inputs[0]
    pads = {"before": (0, *windows.before, 0), "after": (0, *after, 0)}
    return site.inner("Pad", [site.node.inputs[0]], pads)


def _slice_for(site: Site, padded: str, windows: Windows, place: Shape, size: Shape) -> str:
    """Return the elements that all windows see at one part of the kernel."""
    shape = site.builder.shape(padded)
    starts = tuple(p * d for p, d in zip(place, windows.dilations, strict=True))
    axes = zip(site.y.shape[1:-1], windows.strides, windows.dilations, size, strict=True)
    sizes = tuple((c - 1) * s + (k - 1) * d + 1 for c, s, d, k in axes)
    cut = {
        "starts": (0, *starts, 0),
        "sizes": (shape[0], *sizes, shape[-1]),
        "steps": (1,) * len(shape),
    }
    return site.inner("Slice", [padded], cut)
