"""Rewrites convolutions of any kernel, stride, padding and grouping to those of the hardware.

Where one kernel is not enough, the data is copied first. A rule changes where something is computed, never a
number: `window_plans` says why each plan is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mace_core.attributes import values_of
from mace_core.ir import Array, Node
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.rewrite import Match
from mace_target_max78000.device import MAX_DILATED_KERNEL_1D, PROCESSORS, Chip
from mace_target_max78000.legalize.copies import (
    LINE_RANK,
    UNIT_QUANT,
    add_copies,
    copying_filters,
    crop_to_output,
    filters_at_tap,
    plain_window,
    subsample,
)
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.window_plans import (
    IMAGE_RANK,
    NEIGHBORS,
    PADS,
    CopyPlan,
    DirectPlan,
    WindowAxis,
    choose_together,
    list_kernel_lengths,
    plan_copies,
    plan_direct,
)

MAX_COPY_STAGES = 4
"""Stages of copies that are tried; each is a layer more."""


def describe_axes(
    node: Node, x: Sequence[int], kernel: Sequence[int], count: Sequence[int]
) -> tuple[WindowAxis, ...]:
    """Describe what a convolution needs along each spatial axis.

    x, kernel, count: spatial sizes of its input, filters and output.
    """
    windows = Windows.of(tuple(kernel), node.attributes(ConvAttributes))
    sizes = zip(x, kernel, count, windows.strides, windows.before, windows.dilations, strict=True)
    axes = []
    for size, length, results, stride, before, dilation in sizes:
        offsets = tuple(dilation * tap - before for tap in range(length))
        axes.append(WindowAxis(size, results, stride, offsets))
    return tuple(axes)


def share_stride(axes: Sequence[WindowAxis]) -> tuple[WindowAxis, ...] | None:
    """Return the axes with one stride, which the hardware has for both; None if they need two.

    Along an axis of one result any stride gives the same.
    """
    strides = {axis.stride for axis in axes if axis.count > 1} or {1}
    if len(strides) > 1:
        return None
    return tuple(replace(axis, stride=min(strides)) for axis in axes)


def convolution_rule(device: Chip) -> Callable[[Match], Sequence[str] | None]:
    """Return the rule that rewrites each Conv that the device lacks."""

    def rewrite_convolution(match: Match) -> Sequence[str] | None:
        if match.node.op.name != "Conv":
            return None
        x, w = match.shape(0), match.builder.weights[match.node.inputs[1]]
        attrs = match.node.attributes(ConvAttributes)
        group = attrs.group
        count = Windows.of(w.shape[1:-1], attrs).count(x[1:-1])
        axes = share_stride(describe_axes(match.node, x[1:-1], w.shape[1:-1], count))
        if axes is None:
            problem = (
                f"its strides {list(attrs.strides)} differ, and the hardware has one for rows and columns"
            )
            raise NoEquivalentError(f"{problem}; use equal strides")
        rewrite = ConvolutionRewrite(match, axes, w, device)
        is_depthwise = group == x[-1] == w.shape[0]
        # The second generation has kernels for each channel, but none for groups of several channels.
        if group > 1 and not (device.features.depthwise and is_depthwise and rewrite.plan_alone()):
            return replace_filters(match, make_dense(w, group), group=1)
        return rewrite.apply()

    return rewrite_convolution


def replace_filters(match: Match, filters: Array, **attrs: object) -> tuple[str, ...]:
    """Emit the node with other filters of the same storage."""
    w = match.node.inputs[1]
    name = match.builder.weight(f"{w}.formed", filters, match.builder.tensors[w].quant)
    inputs = [match.node.inputs[0], name, *match.node.inputs[2:]]
    return match.emit(match.node.op, inputs, values_of(match.node.attrs) | attrs)


def make_dense(filters: Array, group: int) -> Array:
    """Extend filters [O, *kernel, I / group] to all channels, with zeros where a group does not look."""
    outputs, width = len(filters) // group, filters.shape[-1]
    dense = np.zeros((*filters.shape[:-1], width * group), filters.dtype)
    for g in range(group):
        rows = slice(g * outputs, (g + 1) * outputs)
        dense[rows, ..., g * width : (g + 1) * width] = filters[rows]
    return dense


@dataclass(frozen=True, eq=False)
class ConvolutionRewrite:
    """A convolution and what the hardware has for it.  filters: stored elements, [O, *kernel, I / group]."""

    match: Match
    axes: tuple[WindowAxis, ...]
    filters: Array
    device: Chip

    @property
    def rank(self) -> int:
        """Axes of the data."""
        return len(self.axes) + 2

    @property
    def stride(self) -> int:
        """The one stride that subsampling has."""
        return self.axes[0].stride

    @property
    def is_native(self) -> bool:
        """Whether the node can stay as it is."""
        attrs, kernel = self.match.node.attributes(ConvAttributes), self.filters.shape[1:-1]
        before, after = attrs.pads_before, attrs.pads_after
        strides, dilation = attrs.strides, max(attrs.dilations)
        # A line whose dilated kernel is longer than the hardware's runs as an image of `dilation` columns
        # (see `unit`), whose only kernel is 3x3; its padding would lie between the rows.
        exceeds_kernels = (kernel[0] - 1) * dilation >= list_kernel_lengths(self.rank)[-1]
        if dilation > 1 and self.rank == LINE_RANK and kernel[0] <= MAX_DILATED_KERNEL_1D and exceeds_kernels:
            return not any(before + after) and strides == (1,)
        is_plain = set(strides) == {1} and dilation == 1
        has_kernel = len(set(kernel)) == 1 and kernel[0] in list_kernel_lengths(self.rank)
        return is_plain and has_kernel and before == after and max(before) <= PADS[-1]

    @property
    def _is_dense(self) -> bool:
        """Whether each output looks at all channels."""
        return self.match.node.attributes(ConvAttributes).group == 1

    @property
    def fits(self) -> bool:
        """Whether one kernel of the hardware does it alone, with no result too many."""
        plan = self.plan_alone()
        return plan is not None and _count_unwanted(plan) == 0

    def plan_alone(self) -> tuple[DirectPlan, ...] | None:
        """Plan it with one kernel of the hardware: few results too many, then equal padding, then short.

        Results too many cost a layer that crops them; a short kernel takes less weight memory.
        """

        def cost(plan: tuple[DirectPlan, ...]) -> tuple[int, int]:
            return _count_unwanted(plan), len({axis.pad for axis in plan})

        candidates = []
        for length in list_kernel_lengths(self.rank):
            plan = choose_together([plan_direct(axis, length) for axis in self.axes], cost)
            if plan:
                candidates.append(plan)
        return min(candidates, key=lambda plan: (_count_unwanted(plan), plan[0].length), default=None)

    def plan_copies(self) -> tuple[CopyPlan, ...] | None:
        """Plan it with copies of the data, in as few stages as there can be."""
        # A kernel of 1 moves nothing, so an image's copies are made by 3x3 only; a line has many lengths.
        lengths = list_kernel_lengths(self.rank)[1 if self.rank == IMAGE_RANK else 0 :]
        for depth in range(1, MAX_COPY_STAGES + 1):
            plan = choose_together([plan_copies(axis, lengths, depth) for axis in self.axes], _copy_cost)
            if plan:
                return plan
        return None

    def apply(self) -> Sequence[str] | None:
        """Return the outputs of what replaces the node; None if it can stay.

        The cheapest way is tried first: subsampling alone, one kernel, copies, one kernel with a crop.
        """
        if self.is_native:
            return None
        stride = self.stride
        if stride > 1 and all(axis.offsets == (0,) for axis in self.axes):
            return self._subsample_first(stride)
        single = self.plan_alone()
        # The output of a wide layer is 32-bit sums, which no pool can subsample and no layer can crop.
        is_wide = self.match.builder.storages.get(self.match.node.outputs[0]) is None
        if single and self.fits and not (is_wide and stride > 1):
            return self._emit_alone(single, stride)
        copies = self.plan_copies() if self._is_dense else None
        if copies and _count_copies(copies) * self.filters.shape[-1] <= self.device.channels:
            return self._emit_copies(copies, stride)
        if single and not is_wide:
            return self._emit_alone(single, stride)
        kernel = list(self.filters.shape[1:-1])
        pads = list(self.match.node.attributes(ConvAttributes).pads_before)
        longest = list_kernel_lengths(self.rank)[-1]
        problem = f"kernel {kernel} with stride {stride} and padding {pads} has no exact equivalent"
        raise NoEquivalentError(
            f"{problem} of kernels of {longest}; make the kernel smaller, or stack smaller ones"
        )

    def _subsample_first(self, stride: int) -> Sequence[str]:
        """Subsample the data, of which a kernel of one element takes every `stride`th position only."""
        node = self.match.node
        small = subsample(self.match.builder, node.inputs[0], stride)
        attrs = replace(node.attributes(ConvAttributes), strides=(1,) * len(self.axes))
        return self.match.emit("Conv", [small, *node.inputs[1:]], attrs)

    def _emit_alone(self, plan: Sequence[DirectPlan], stride: int) -> Sequence[str]:
        """Emit one convolution, a subsampling of its results, and a crop of those too many."""
        places = [[(0, place) for place in axis.places] for axis in plan]
        filters = spread_filters(self.filters, places, plan[0].length, [1] * len(plan))
        pads = tuple(axis.pad for axis in plan)
        if stride == 1 and _count_unwanted(plan) == 0:
            return replace_filters(self.match, filters, **plain_window(pads))
        node, builder = self.match.node, self.match.builder
        name = builder.reserve_output(f"{node.outputs[0]}.full", builder.storages[node.outputs[0]])
        full = add_convolution(self.match, node.inputs[0], filters, pads, [name])[0]
        if stride > 1:
            full = subsample(builder, full, stride)
        return crop_to_output(self.match, full, [axis.lead for axis in plan])

    def _emit_copies(self, plan: Sequence[CopyPlan], stride: int) -> Sequence[str]:
        """Emit the stages of copies, a subsampling of the last, and the convolution over it."""
        builder = self.match.builder
        x, counts = self.match.node.inputs[0], [1] * len(plan)
        for stages in zip(*(axis.stages for axis in plan), strict=True):
            x = add_copies(builder, x, stages, counts, plan[0].copying)
            counts = [len(stage.sources) for stage in stages]
        if stride > 1:
            x = subsample(builder, x, stride)
        filters = spread_filters(self.filters, [axis.places for axis in plan], plan[0].length, counts)
        return add_convolution(self.match, x, filters, [axis.pad for axis in plan], self.match.node.outputs)


def _count_copies(plan: Sequence[CopyPlan]) -> int:
    """Return the largest number of copies of each channel that a stage makes."""
    by_stage = zip(*(axis.stages for axis in plan), strict=True)
    return max(prod(len(stage.sources) for stage in stages) for stages in by_stage)


def _count_unwanted(plan: Sequence[DirectPlan]) -> int:
    """Return the number of results too many."""
    return sum(axis.lead + axis.extra for axis in plan)


def _copy_cost(plan: tuple[CopyPlan, ...]) -> tuple[int, int]:
    """Return fewest channels first, because they cost weights; then equal padding on rows and columns."""
    paddings = {(tuple(stage.pad for stage in axis.stages), axis.pad) for axis in plan}
    return prod(axis.copies for axis in plan), len(paddings)


def add_convolution(
    match: Match, x: str, filters: Array, pads: Sequence[int], outputs: Sequence[str]
) -> tuple[str, ...]:
    """Add the node's convolution with other filters over another tensor."""
    node, builder = match.node, match.builder
    name = builder.weight(f"{node.inputs[1]}.formed", filters, builder.tensors[node.inputs[1]].quant)
    group = builder.shape(x)[-1] // filters.shape[-1]
    attrs = values_of(node.attrs) | plain_window(pads) | {"group": group}
    return builder.add("Conv", [x, name, *node.inputs[2:]], attrs, outputs=outputs, like=node)


def spread_filters(
    filters: Array, places: Sequence[Sequence[tuple[int, int]]], length: int, copies: Sequence[int]
) -> Array:
    """Spread filters over copies of the data: [O, *kernel, I] -> [O, *(length, ...), copies * I].

    places: for each axis and tap the copy and the place in the kernel.  copies: along each axis; the last
    counts fastest.
    """
    channels = filters.shape[-1]
    spread = np.zeros((len(filters), *(length,) * len(places), prod(copies) * channels), filters.dtype)
    for tap in product(*map(range, filters.shape[1:-1])):
        chosen = [axis[t] for axis, t in zip(places, tap, strict=True)]
        copy = int(np.ravel_multi_index([c for c, _ in chosen], tuple(copies)))
        columns = slice(copy * channels, (copy + 1) * channels)
        index_of: tuple[Any, ...] = (slice(None), *(place for _, place in chosen), columns)
        spread[index_of] = filters_at_tap(filters, tap)
    return spread


def pad_wide_line(match: Match) -> Sequence[str] | None:
    """Compute a padded line of more than 64 channels as an image one column wide.

    The second generation cannot pad such a line, but it can pad images. A kernel of three neighbors becomes
    the middle column of an image's; before a longer one, copies add zeros at both ends.
    """
    node = match.node
    if node.op.name != "Conv" or len(match.shape(0)) != LINE_RANK or match.shape(0)[-1] <= PROCESSORS:
        return None
    attrs = node.attributes(ConvAttributes)
    pad, w = attrs.pads_before[0], match.builder.weights[node.inputs[1]]
    if not pad:
        return None
    if w.shape[1] == NEIGHBORS and pad <= PADS[-1]:
        return _convolve_as_image(match, w, pad)
    x = node.inputs[0]
    for _ in range(pad):
        x = _pad_by_one(match, x)
    return match.emit("Conv", [x, *node.inputs[1:]], values_of(attrs) | plain_window((0,)))


def _convolve_as_image(match: Match, w: Array, pad: int) -> Sequence[str]:
    """Use the kernel as the middle column of an image's, which is padded by one column on both sides."""
    node, builder = match.node, match.builder
    filters = np.zeros((len(w), NEIGHBORS, NEIGHBORS, w.shape[-1]), w.dtype)
    filters[:, :, 1] = w
    weight = builder.weight(f"{node.inputs[1]}.image", filters, builder.tensors[node.inputs[1]].quant)
    attrs = values_of(node.attrs) | plain_window((pad, 1))
    name = builder.reserve_output(f"{node.name}.image", builder.storages.get(node.outputs[0]))
    image = _reshape_to_image(match, node.inputs[0])
    result = builder.one("Conv", [image, weight, *node.inputs[2:]], attrs, outputs=[name], like=node)
    return match.emit("Reshape", [result], {"shape": (1, builder.shape(result)[1], len(w))})


def _reshape_to_image(match: Match, x: str) -> str:
    """View a line as an image one column wide, which lies in memory alike."""
    _, length, channels = match.builder.shape(x)
    return match.builder.one("Reshape", [x], {"shape": (1, length, 1, channels)})


def _pad_by_one(match: Match, x: str) -> str:
    """Add a zero at both ends: a kernel of 3 that is padded by 2 makes two results more than it reads."""
    builder = match.builder
    _, length, channels = builder.shape(x)
    filters = copying_filters(channels, [[1], [1]], NEIGHBORS)
    weight = builder.weight(f"{match.node.name}.unit", filters, UNIT_QUANT)
    name = builder.reserve_output(f"{match.node.name}.padded", builder.tensors[x].storage)
    image = _reshape_to_image(match, x)
    result = builder.one("Conv", [image, weight], plain_window((2, 1)), outputs=[name])
    return builder.one("Reshape", [result], {"shape": (1, length + 2, channels)})
