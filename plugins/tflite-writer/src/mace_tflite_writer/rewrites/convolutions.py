"""Ops as convolutions, for accelerators whose only fast unit these use."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array, DType, Graph, Quant
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.depth_space import BlockAttributes, DepthToSpaceAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_tflite_writer.rewrites.site import Site, rewrite_sites

MAX_WEIGHTS = 1 << 20
"""Weights of a convolution that only moves; more would cost more than a slow way to move."""

NO_PADS = {"pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}


def products_as_convolutions(graph: Graph) -> Graph:
    """Compute products with constant matrices as convolutions of one pixel, the rows as pixels. Exact.

    For chips whose fully connected layers take few batches.
    """
    return rewrite_sites(graph, _product)


def _product(site: Site) -> Sequence[str] | None:
    w = site.input(1)
    if site.node.op.name != "MatMul" or w is None or w.name not in site.builder.weights:
        return None
    if len(w.shape) != 2 or len(site.x.shape) < 2:
        return None
    quant = w.quant
    # Results lie along axis 1 of a matrix and along axis 0 of filters.
    if quant is not None and quant.axis is not None:
        if quant.axis != 1:
            return None
        quant = Quant(quant.scale, quant.zero_point, 0)
    filters = site.builder.weights[w.name].T[:, None, None, :]
    weights = site.builder.weight(f"{w.name}/filters", filters, quant)
    pixels = math.prod(site.x.shape[:-1])
    shape = {"shape": (1, pixels, 1, site.x.shape[-1])}
    image = site.inner("Reshape", [site.node.inputs[0]], shape, site.x.storage)
    clamp = site.attributes(ClampAttributes)
    attrs = {**NO_PADS, "strides": (1, 1), "low": clamp.low, "high": clamp.high}
    result = site.inner("Conv", [image, weights, *site.node.inputs[2:]], attrs, site.y.storage)
    return site.last("Reshape", [result], {"shape": site.y.shape})


def products_of_rows(graph: Graph) -> Graph:
    """Compute products of more than two axes with a constant matrix with all rows on one axis. Exact.

    For chips whose fully connected layers have two axes.
    """
    return rewrite_sites(graph, _rows)


def _rows(site: Site) -> Sequence[str] | None:
    w, rank = site.input(1), len(site.x.shape)
    if site.node.op.name != "MatMul" or rank < 3 or w is None or len(w.shape) != 2:
        return None
    shape = {"shape": (math.prod(site.x.shape[:-1]), site.x.shape[-1])}
    rows = site.inner("Reshape", [site.node.inputs[0]], shape, site.x.storage)
    result = site.inner("MatMul", [rows, *site.node.inputs[1:]], site.node.attrs, site.y.storage)
    return site.last("Reshape", [result], {"shape": site.y.shape})


def means_as_convolutions(graph: Graph) -> Graph:
    """Compute means of stored integers over whole images as convolutions of each channel by itself.

    For runtimes whose mean keeps the scale; those that do stay. The filters are ones of the scale 1 / pixels,
    which single precision rounds: exact but for real results that lie in the middle between two steps.
    """
    return rewrite_sites(graph, _mean)


def _mean(site: Site) -> Sequence[str] | None:
    if site.node.op.name != "ReduceMean" or site.x.quant is None or site.x.storage == site.y.storage:
        return None
    axes = sorted(axis % len(site.x.shape) for axis in site.attributes(ReduceAttributes).axes)
    if len(site.x.shape) != 4 or axes != [1, 2] or site.x.dtype not in (DType.I8, DType.U8):
        return None
    channels, kernel = site.x.shape[-1], site.x.shape[1:3]
    # Of the activations' type, because the format has no products of uint8 and int8.
    ones = np.ones((channels, *kernel, 1), site.x.dtype.numpy)
    weights = site.builder.weight(
        f"{site.y.name}/ones", ones, Quant.of(float(np.float32(1 / math.prod(kernel))))
    )
    attrs = {**NO_PADS, "strides": (1, 1), "group": channels}
    if site.attributes(ReduceAttributes).keepdims:
        return site.last("Conv", [site.node.inputs[0], weights], attrs)
    result = site.inner("Conv", [site.node.inputs[0], weights], attrs, site.y.storage)
    return site.last("Reshape", [result], {"shape": site.y.shape})


def blocks_as_convolutions(graph: Graph, every: bool = False) -> Graph:
    """Compute DepthToSpace and SpaceToDepth as convolutions whose filters pick one element each.

    Exact for finite numbers; 0 times infinity is none.
    every: whether also those that the format has an operator for; else the order of channels that it has not.
    """
    return rewrite_sites(graph, lambda site: _blocks(site, every))


def _blocks(site: Site, every: bool) -> Sequence[str] | None:
    if site.node.op.name not in ("DepthToSpace", "SpaceToDepth") or len(site.x.shape) != 4:
        return None
    if site.x.storage != site.y.storage or not (every or site.is_refused):
        return None
    block = site.attributes(BlockAttributes).block
    weights_count = block * block * site.x.shape[-1] * site.y.shape[-1]
    if weights_count > MAX_WEIGHTS or not (site.x.quant or site.x.dtype.is_float):
        return None
    attrs = {**NO_PADS, "strides": (block, block)}
    if site.node.op.name == "SpaceToDepth":
        weights = _add_picks(site, _picks_to_depth(block, site.x.shape[-1]))
        return site.last("Conv", [site.node.inputs[0], weights], attrs)
    mode = site.attributes(DepthToSpaceAttributes).mode
    weights = _add_picks(site, _picks_to_space(block, site.y.shape[-1], mode))
    return site.last("ConvTranspose", [site.node.inputs[0], weights], {**attrs, "output_padding": (0, 0)})


def _add_picks(site: Site, picks: Array) -> str:
    """Add filters of zeros and ones; stored integers of scale 1, so that results keep their scale."""
    name = f"{site.y.name}/picks"
    if site.x.quant is None:
        return site.builder.weight(name, picks.astype(site.x.dtype.numpy))
    dtype = DType.U8 if site.x.dtype is DType.U8 else DType.I8
    return site.builder.weight(name, picks.astype(dtype.numpy), Quant.of(1.0))


def _picks_to_depth(block: int, channels: int) -> Array:
    """Return filters [block * block * channels, block, block, channels] of SpaceToDepth."""
    ones = np.eye(block * block * channels)
    return ones.reshape(-1, block, block, channels)


def _picks_to_space(block: int, channels: int, mode: str) -> Array:
    """Return filters [channels, block, block, channels * block * block] of DepthToSpace."""
    ones = np.eye(block * block * channels)
    if mode == "CRD":
        return ones.reshape(channels, block, block, -1)
    return ones.reshape(block, block, channels, -1).transpose(2, 0, 1, 3)
