"""Rewrites what changes the number of rows and columns: pools, transposed convolutions, Resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from mace_core.ir import Array, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.ops.pool import AveragePoolAttributes, PoolAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_core.ops.slice import SliceAttributes
from mace_core.rewrite import Match
from mace_frontend_ai8x.network import Operation
from mace_target_max78000.device import KERNELS, MAX_POOL
from mace_target_max78000.legalize.copies import (
    IMAGE_AXES,
    UNIT_QUANT,
    copying_filters,
    plain_window,
    require_bytes,
)
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.window_plans import IMAGE_RANK, PADS

POOLED_RANKS = (3, 4)
"""Axes of data with rows: lines and images."""


def pool_rule(has_dilated_pools: bool) -> Callable[[Match], Sequence[str] | None]:
    """Return the rule that rewrites pools with padding or other strides."""

    def rewrite_pool(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name not in ("MaxPool", "AveragePool"):
            return None
        attrs = node.attributes(PoolAttributes)
        size, dilations = list(attrs.kernel), list(attrs.dilations)
        if max(size) > MAX_POOL:
            problem = f"its window is {size}, and those of the hardware are at most {MAX_POOL}"
            raise NoEquivalentError(f"{problem}; use two smaller pools")
        if max(dilations) > 1 and not has_dilated_pools:
            problem = f"its dilation is {dilations}, and the part has no dilated pools"
            raise NoEquivalentError(f"{problem}; use dilation 1")
        before, after = _measure_reach(match)
        if any(before) or any(after):
            return _pad_pool(match, before, after)
        return _unify_strides(match)

    return rewrite_pool


def _measure_reach(match: Match) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many elements before and after the data the windows need, along each axis."""
    node, spatial = match.node, match.shape(0)[1:-1]
    attrs = node.attributes(PoolAttributes)
    windows = attrs.windows(len(spatial))
    count = windows.count(spatial, attrs.ceil)
    axes = zip(spatial, count, windows.strides, windows.extent, windows.before, strict=True)
    # The padding that the node states may be more than its last window reaches.
    after = [(results - 1) * stride + extent - size - pad for size, results, stride, extent, pad in axes]
    return windows.before, tuple(max(elements, 0) for elements in after)


def _pad_pool(match: Match, before: tuple[int, ...], after: tuple[int, ...]) -> Sequence[str]:
    """Pad in a layer of its own, because the hardware pads after its pool."""
    node, builder = match.node, match.builder
    if node.op.name == "AveragePool" and not node.attributes(AveragePoolAttributes).count_pad:
        problem = "its mean leaves out the padding"
        raise NoEquivalentError(f"{problem}; let it count the padding, or pad nothing")
    if node.op.name == "MaxPool" and not is_never_negative(match, node.inputs[0]):
        # A zero of padding would be the maximum of a window of negative data.
        problem = "it pads data that may be negative, and the hardware pads with zeros"
        raise NoEquivalentError(f"{problem}; put a ReLU before it, or pad nothing")
    storage = require_bytes(builder.tensors[node.inputs[0]].storage, node.inputs[0])
    name = builder.reserve_output(f"{node.name}.padded", storage)
    pads = {"before": (0, *before, 0), "after": (0, *after, 0)}
    padded = builder.one("Pad", [node.inputs[0]], pads, outputs=[name], like=node)
    zeros = (0,) * len(before)
    attrs = replace(node.attributes(PoolAttributes), pads_before=zeros, pads_after=zeros, ceil=False)
    return match.emit(node.op, [padded], attrs)


def _unify_strides(match: Match) -> Sequence[str] | None:
    """Give both axes one stride; along an axis of one window any stride gives the same."""
    node = match.node
    attrs = node.attributes(PoolAttributes)
    strides = attrs.strides
    problem = f"its strides {list(strides)} differ, and the hardware has one for rows and columns"
    shape = match.shape(0)[1:-1]
    count = attrs.windows(len(shape)).count(shape)
    needed = {stride for stride, windows in zip(strides, count, strict=True) if windows > 1}
    if len(needed) > 1:
        raise NoEquivalentError(f"{problem}; use equal strides")
    stride = needed.pop() if needed else min(max(strides), MAX_POOL)
    if stride > MAX_POOL:
        raise NoEquivalentError(
            f"its stride is {stride}, and those of the hardware are at most {MAX_POOL}; use two pools"
        )
    unified = replace(attrs, strides=(stride,) * len(strides))
    # A smaller stride along an axis of one window may leave room for a second one.
    if unified.windows(len(shape)).count(shape) != count:
        raise NoEquivalentError(f"{problem}; use equal strides")
    return match.emit(node.op, node.inputs, unified) if unified != attrs else None


def is_never_negative(match: Match, tensor: str) -> bool:
    """Whether the node that computes a tensor limits it to 0 and above."""
    node: Node | None = match.builder.producer(tensor)
    while node and node.op.moves and len(node.inputs) == 1:
        node = match.builder.producer(node.inputs[0])
    if node is None:
        return False
    is_clamped = isinstance(node.attrs, ClampAttributes) and node.attrs.low >= 0
    return is_clamped or node.op.name in ("Relu", "Abs")


def rewrite_reduction(match: Match) -> Sequence[str] | None:
    """Rewrite the mean or maximum over all rows and columns to a pool."""
    node, builder = match.node, match.builder
    if node.op.name not in ("ReduceMean", "ReduceMax"):
        return None
    shape = match.shape(0)
    axes = {axis % len(shape) for axis in node.attributes(ReduceAttributes).axes}
    if len(shape) not in POOLED_RANKS or axes != set(range(1, len(shape) - 1)):
        problem = f"it reduces axes {sorted(axes)}, and the hardware pools rows and columns"
        raise NoEquivalentError(f"{problem}; reduce all rows and columns, or compute it outside")
    attrs = {"kernel": shape[1:-1], **plain_window((0,) * len(axes))}
    op = "AveragePool" if node.op.name == "ReduceMean" else "MaxPool"
    name = builder.reserve_output(f"{node.name}.pooled", builder.storages.get(node.outputs[0]))
    pooled = builder.one(op, [node.inputs[0]], attrs, outputs=[name], like=node)
    result = node.op.infer([builder.tensors[node.inputs[0]].real], node.attrs)[0][1]
    return [pooled] if result == builder.shape(pooled) else match.emit("Reshape", [pooled], {"shape": result})


def remove_crop_before_pool(match: Match) -> Sequence[str] | None:
    """Let a pool over the beginning of data read all of it, where its windows stay the same.

    This saves the layers that would crop.
    """
    node = match.node
    if node.op.name not in ("MaxPool", "AveragePool"):
        return None
    crop = match.sole_producer(0, "Slice")
    producer_node = match.builder.producer(node.inputs[0])
    if (
        crop is None
        and producer_node
        and producer_node.op.name == "Slice"
        and match.uses.get(node.inputs[0], 1) == 1
    ):
        crop = producer_node
    if crop is None or not _keeps_start(crop.attributes(SliceAttributes)):
        return None
    windows = node.attributes(PoolAttributes).windows(len(match.shape(0)) - 2)
    source_shape, part_shape = match.builder.shape(crop.inputs[0]), match.shape(0)
    same = (
        windows.count(source_shape[1:-1]) == windows.count(part_shape[1:-1])
        and source_shape[-1] == part_shape[-1]
    )
    return match.emit(node.op, [crop.inputs[0]], node.attrs) if same else None


def _keeps_start(attrs: SliceAttributes) -> bool:
    """Whether a Slice takes all elements up to its end."""
    return not any(attrs.starts) and set(attrs.steps) == {1}


((TRANSPOSED_KERNEL, _),) = KERNELS[Operation.CONV_TRANSPOSE2D]
"""The hardware's only kernel of a transposed convolution.

Its stride is 2, and it makes 2 n + 2 - 2 pad of n.
"""

DOUBLING = {"strides": (2, 2), "output_padding": (1, 1)}
"""Attributes of the hardware's transposed convolution, besides its padding."""


def rewrite_transposed(match: Match) -> Sequence[str] | None:
    """Rewrite a transposed convolution: stride 1 to a convolution, stride 2 to the hardware's kernel."""
    node = match.node
    if node.op.name != "ConvTranspose":
        return None
    group = node.attributes(ConvTransposeAttributes).group
    if group > 1:
        raise NoEquivalentError(f"it is a transposed convolution in {group} groups; use one group")
    rewrite = TransposedRewrite(match, match.builder.weights[node.inputs[1]])
    return rewrite.as_convolution() if set(rewrite.strides) == {1} else rewrite.as_doubling()


class _AxisPlan(NamedTuple):
    """The places of the taps in the hardware's kernel, its padding, and the size that it makes."""

    places: tuple[int, ...]
    pad: int
    size: int


class TransposedRewrite:
    """A transposed convolution.  w: filters [O, *kernel, I]."""

    def __init__(self, match: Match, w: Array) -> None:
        self.match, self.w = match, w
        attrs = match.node.attributes(ConvTransposeAttributes)
        self.strides, self.dilations, self.before = attrs.strides, attrs.dilations, attrs.pads_before
        self.size = match.builder.tensors[match.node.inputs[0]].shape[1:-1]
        inputs = [match.builder.tensors[name].real if name else None for name in match.node.inputs]
        self.count = match.node.op.infer(inputs, attrs)[0][1][1:-1]

    def as_convolution(self) -> Sequence[str]:
        """Emit a convolution with the kernel reversed, over as much padding as it reaches."""
        kernel = self.w.shape[1:-1]
        extents = [(k - 1) * d for k, d in zip(kernel, self.dilations, strict=True)]
        before = tuple(extent - pad for extent, pad in zip(extents, self.before, strict=True))
        sizes = zip(self.count, extents, self.size, before, strict=True)
        after = tuple(results + extent - size - pad for results, extent, size, pad in sizes)
        if min(*before, *after) < 0:
            raise NoEquivalentError("its padding is larger than its kernel; make the padding smaller")
        reversed_filters = np.flip(self.w, tuple(range(1, self.w.ndim - 1)))
        attrs = {**plain_window(before), "pads_after": after, "dilations": self.dilations}
        return self._emit("Conv", reversed_filters, attrs, self.match.node.outputs)

    def as_doubling(self) -> Sequence[str] | None:
        """Emit the hardware's kernel with stride 2, and a crop of what is too much; None if it can stay."""
        kernel = self.w.shape[1:-1]
        if set(self.strides) != {2} or len(kernel) != IMAGE_AXES:
            problem = f"its strides are {list(self.strides)} over {len(kernel)} axes"
            raise NoEquivalentError(f"{problem}; use stride 2 over rows and columns of an image")
        rows, columns = (self._plan_axis(axis) for axis in range(IMAGE_AXES))
        pads, sizes = (rows.pad, columns.pad), (rows.size, columns.size)
        if self._is_native(pads, sizes):
            return None
        shape = (len(self.w), TRANSPOSED_KERNEL, TRANSPOSED_KERNEL, self.w.shape[-1])
        filters = np.zeros(shape, self.w.dtype)
        for row, column in product(*map(range, kernel)):
            filters[:, rows.places[row], columns.places[column]] = self.w[:, row, column]
        attrs = {**plain_window(pads), **DOUBLING}
        if sizes == self.count:
            return self._emit("ConvTranspose", filters, attrs, self.match.node.outputs)
        builder, node = self.match.builder, self.match.node
        # The hardware always makes one row and column more (output padding 1); they are cropped.
        name = builder.reserve_output(f"{node.name}.full", builder.storages.get(node.outputs[0]))
        full = self._emit("ConvTranspose", filters, attrs, [name])
        result = (1, *self.count, len(self.w))
        return self.match.emit("Slice", full, {"starts": (0,) * 4, "sizes": result, "steps": (1,) * 4})

    def _is_native(self, pads: tuple[int, int], sizes: tuple[int, int]) -> bool:
        """Whether the node is the hardware's transposed convolution already."""
        if self.w.shape[1:-1] != (TRANSPOSED_KERNEL,) * 2 or sizes != self.count or pads != self.before:
            return False
        attrs = self.match.node.attributes(ConvTransposeAttributes)
        return (attrs.pads_after, attrs.output_padding, attrs.dilations) == (pads, (1, 1), (1, 1))

    def _plan_axis(self, axis: int) -> _AxisPlan:
        """Place the taps of one axis in the hardware's kernel, with the smallest padding that allows it."""
        offsets = [k * self.dilations[axis] - self.before[axis] for k in range(self.w.shape[1 + axis])]
        for pad in PADS:
            places, size = tuple(e + pad for e in offsets), 2 * self.size[axis] + 2 - 2 * pad
            if min(places) >= 0 and max(places) < TRANSPOSED_KERNEL and size >= self.count[axis]:
                return _AxisPlan(places, pad, size)
        kernel = f"kernel {list(self.w.shape[1:-1])} with padding {list(self.before)}"
        problem = f"{kernel} reaches further than the hardware's kernel of {TRANSPOSED_KERNEL}"
        raise NoEquivalentError(f"{problem}; use kernel 3 with padding 1, or kernel 2 without")

    def _emit(
        self, op: str, filters: Array, attrs: Mapping[str, object], outputs: Sequence[str]
    ) -> Sequence[str]:
        """Add the node's operation with other filters, its bias and its limits."""
        node, builder = self.match.node, self.match.builder
        weight = builder.weight(f"{node.inputs[1]}.formed", filters, builder.tensors[node.inputs[1]].quant)
        clamp = node.attributes(ClampAttributes)
        limits = {"low": clamp.low, "high": clamp.high}
        inputs = [node.inputs[0], weight, *node.inputs[2:]]
        return builder.add(op, inputs, {**attrs, **limits}, outputs=outputs, like=node)


def rewrite_resize(match: Match) -> Sequence[str] | None:
    """Rewrite a Resize that repeats each row and column to a transposed convolution."""
    node = match.node
    if node.op.name != "Resize":
        return None
    shape = match.shape(0)
    if node.attributes(ResizeAttributes).mode != "nearest" or len(shape) != IMAGE_RANK or not _doubles(match):
        problem = "it resizes in another way than repeating each row and column of an image"
        raise NoEquivalentError(f"{problem}; use nearest with a factor of 2, or resize outside")
    # Stride 2 puts a zero behind every element; ones at these four taps repeat it over 2 x 2.
    filters = copying_filters(shape[-1], [[1], [1]], TRANSPOSED_KERNEL)
    for row, column in ((1, 2), (2, 1), (2, 2)):
        filters[:, row, column] = filters[:, 1, 1]
    weight = match.builder.weight(f"{node.name}.unit", filters, UNIT_QUANT)
    return match.emit("ConvTranspose", [node.inputs[0], weight], {**plain_window((1, 1)), **DOUBLING})


def _doubles(match: Match) -> bool:
    """Whether a Resize keeps batch and channels, and repeats each row and column."""
    for axis, size in enumerate(match.shape(0)):
        taps = axis_taps(match.node.attributes(ResizeAttributes), axis, size)
        is_spatial = 0 < axis < IMAGE_RANK - 1
        if is_spatial and not np.array_equal(taps.indices[:, 0], np.arange(2 * size) // 2):
            return False
        if not is_spatial and not taps.is_identity(size):
            return False
    return True
