"""Large kernels over blocks of an image, whose pixels become channels: exact for stored integers too.

Partial sums of a kernel's parts would each be rounded, because no operator of the format gives sums of 32
bits. Here every sum stays one: SpaceToDepth makes a pixel of each block, a filter for each place in a block
finds the same products with the same weights among the channels of fewer pixels, and DepthToSpace lays the
results out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.ir import Array, Graph, Quant, Shape
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_tflite_writer.rewrites.site import Site, rewrite_sites

MAX_WEIGHTS = 1 << 22
"""Weights of a rewritten convolution, most of them zeros; more would cost more than a slow kernel does."""


@dataclass(frozen=True)
class _Blocks:
    """A block of pixels on each side, and the results whose windows begin in it."""

    size: int
    phases: int
    kernel: Shape


def kernels_by_blocks(graph: Graph, largest: int, only_stored: bool = False) -> Graph:
    """Compute convolutions of one group whose kernel is longer than `largest` over blocks of pixels.

    Exact: each result is one sum of the same products. Convolutions in groups, with dilations, with different
    strides, or whose weights would become too many stay as they are.
    only_stored: whether those of floats stay as well.
    """
    return rewrite_sites(
        graph, lambda site: None if only_stored and site.x.quant is None else _by_blocks(site, largest)
    )


def _by_blocks(site: Site, largest: int) -> Sequence[str] | None:
    w = site.input(1)
    if site.node.op.name != "Conv" or w is None or len(w.shape) != 4 or max(w.shape[1:-1]) <= largest:
        return None
    attrs = site.attributes(ConvAttributes)
    array = site.builder.weights.get(w.name)
    if array is None or attrs.group > 1 or set(attrs.dilations) != {1} or len(set(attrs.strides)) > 1:
        return None
    blocks = _choose_blocks(w.shape[1:3], attrs.strides[0], largest)
    filters = _spread(array, blocks, attrs.strides[0], 0 if w.quant is None else w.quant.zero_point[0])
    if filters.size > MAX_WEIGHTS:
        return None
    copies = blocks.phases**2
    names = [site.builder.weight(f"{w.name}/blocks", filters, _tile(w.quant, copies))]
    bias = site.input(2)
    if bias is not None:
        constant = site.builder.weights.get(bias.name)
        if constant is None:
            return None
        names.append(
            site.builder.weight(f"{bias.name}/blocks", np.tile(constant, copies), _tile(bias.quant, copies))
        )
    return _emit(site, names, blocks, attrs)


def _choose_blocks(kernel: Shape, stride: int, largest: int) -> _Blocks:
    """Return the smallest blocks, a multiple of the stride, over which the kernel is small enough."""
    # Blocks of one pixel would leave the kernel as it is.
    size = stride if stride > 1 else 2
    while True:
        small = tuple(-(-(size - stride + k) // size) for k in kernel)
        if max(small) <= largest:
            return _Blocks(size, size // stride, small)
        size += stride


def _spread(array: Array, blocks: _Blocks, stride: int, zero: int) -> Array:
    """Return the filters [phases, phases, O, KH, KW, block, block, I], one for each place of a window."""
    outputs, height, width, inputs = array.shape
    size, phases = blocks.size, blocks.phases
    shape = (phases, phases, outputs, blocks.kernel[0] * size, blocks.kernel[1] * size, inputs)
    # Places outside of the kernel store the zero point, which is the weight 0.
    spread = np.full(shape, zero, array.dtype)
    for row in range(phases):
        for column in range(phases):
            rows = slice(row * stride, row * stride + height)
            columns = slice(column * stride, column * stride + width)
            spread[row, column, :, rows, columns] = array
    split = spread.reshape(-1, blocks.kernel[0], size, blocks.kernel[1], size, inputs)
    ordered = split.transpose(0, 1, 3, 2, 4, 5)
    return np.ascontiguousarray(ordered.reshape(-1, *blocks.kernel, size * size * inputs))


def _tile(quant: Quant | None, copies: int) -> Quant | None:
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scale * copies, quant.zero_point * copies, quant.axis)


def _emit(site: Site, names: list[str], blocks: _Blocks, attrs: ConvAttributes) -> Sequence[str]:
    """Add the nodes; names: of the filters and the bias."""
    w = site.input(1)
    assert w is not None
    windows = Windows.of(w.shape[1:3], attrs)
    counts = [-(-n // blocks.phases) for n in site.y.shape[1:3]]
    # Every block that a window touches must be whole.
    lengths = [(n + k - 1) * blocks.size for n, k in zip(counts, blocks.kernel, strict=True)]
    sides = zip(lengths, site.x.shape[1:3], windows.before, strict=True)
    after = [max(n - length - before, 0) for n, length, before in sides]
    pads = {"before": (0, *windows.before, 0), "after": (0, *after, 0)}
    padded = site.inner("Pad", [site.node.inputs[0]], pads, site.x.storage)
    image = (site.x.shape[0], *lengths, site.x.shape[-1])
    if site.builder.shape(padded) != image:
        cut = {"starts": (0,) * 4, "sizes": image, "steps": (1,) * 4}
        padded = site.inner("Slice", [padded], cut, site.x.storage)
    pixels = site.inner("SpaceToDepth", [padded], {"block": blocks.size}, site.x.storage)
    zeros = (0, 0)
    dense = replace(attrs, strides=(1, 1), pads_before=zeros, pads_after=zeros)
    result = site.inner("Conv", [pixels, *names], dense, site.y.storage)
    if blocks.phases > 1:
        result = site.inner("DepthToSpace", [result], {"block": blocks.phases, "mode": "DCR"}, site.y.storage)
    if site.builder.shape(result) == site.y.shape:
        return site.last("Identity", [result])
    return site.last("Slice", [result], {"starts": (0,) * 4, "sizes": site.y.shape, "steps": (1,) * 4})
