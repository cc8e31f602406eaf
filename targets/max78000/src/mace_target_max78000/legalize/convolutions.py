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

from mace_core.ir import Array, Node
from mace_core.ops.arguments import integers
from mace_core.ops.windows import Windows
from mace_core.rewrite import Match
from mace_target_max78000.device import PROCESSORS, Device
from mace_target_max78000.legalize.copies import (
    UNIT_QUANT,
    add_copies,
    copying_filters,
    crop_to_output,
    filters_at_tap,
    plain_window,
    subsample,
)
from mace_target_max78000.legalize.refusals import RefusedError
from mace_target_max78000.legalize.window_plans import (
    CopyPlan,
    DirectPlan,
    WindowAxis,
    choose_together,
    list_kernel_lengths,
    plan_copies,
    plan_direct,
)

MAX_DILATED_KERNEL = 3
"""The longest kernel along a line that the hardware dilates beyond its longest kernel; it pads none."""

MAX_COPY_STAGES = 4
"""Stages of copies that are tried."""


def describe_axes(
    node: Node, x: Sequence[int], kernel: Sequence[int], count: Sequence[int]
) -> tuple[WindowAxis, ...]:
    """What a convolution wants along each spatial axis.

    x, kernel, count: spatial sizes of its input, filters and output.
    """
    windows = Windows.of(tuple(kernel), node.attrs)
    found = []
    for n, k, c, s, before, d in zip(
        x, kernel, count, windows.strides, windows.before, windows.dilations, strict=True
    ):
        found.append(WindowAxis(n, c, s, tuple(d * tap - before for tap in range(k))))
    return tuple(found)


def share_stride(axes: Sequence[WindowAxis]) -> tuple[WindowAxis, ...] | None:
    """The axes with one stride, which does not matter along an axis of one result; None if two are needed."""
    strides = {axis.stride for axis in axes if axis.count > 1} or {1}
    return tuple(replace(axis, stride=min(strides)) for axis in axes) if len(strides) == 1 else None


def convolution_rule(device: Device) -> Callable[[Match], Sequence[str] | None]:
    """Rewrites each Conv that the device lacks."""

    def convolution(match: Match) -> Sequence[str] | None:
        if match.node.op.name != "Conv":
            return None
        x, w = match.shape(0), match.new.weights[match.node.inputs[1]]
        group = int(str(match.node.attrs["group"]))
        count = Windows.of(w.shape[1:-1], match.node.attrs).count(x[1:-1])
        axes = share_stride(describe_axes(match.node, x[1:-1], w.shape[1:-1], count))
        if axes is None:
            strides = integers(match.node.attrs, "strides")
            raise RefusedError(
                f"its strides {list(strides)} differ; the hardware has one for rows and columns"
            )
        job = ConvolutionRewrite(match, axes, w, device)
        if group > 1 and not (device.pipelined and group == x[-1] == w.shape[0] and job.direct()):
            return replace_filters(match, make_dense(w, group), group=1)
        return job.rewritten()

    return convolution


def replace_filters(match: Match, filters: Array, **attrs: object) -> tuple[str, ...]:
    """The node with other filters of the same storage."""
    w = match.node.inputs[1]
    name = match.new.weight(f"{w}.formed", filters, match.new.tensors[w].quant)
    return match.emit(
        match.node.op, [match.node.inputs[0], name, *match.node.inputs[2:]], {**match.node.attrs, **attrs}
    )


def make_dense(filters: Array, group: int) -> Array:
    """Filters over all channels, zero where a group does not look.  filters: [O, *kernel, I / group]."""
    outputs, width = len(filters) // group, filters.shape[-1]
    whole = np.zeros((*filters.shape[:-1], width * group), filters.dtype)
    for g in range(group):
        rows = slice(g * outputs, (g + 1) * outputs)
        whole[rows, ..., g * width : (g + 1) * width] = filters[rows]
    return whole


@dataclass(frozen=True, eq=False)
class ConvolutionRewrite:
    """A convolution and what the hardware has for it.  filters: stored elements, [O, *kernel, I / group]."""

    match: Match
    axes: tuple[WindowAxis, ...]
    filters: Array
    device: Device

    @property
    def rank(self) -> int:
        """Of the data."""
        return len(self.axes) + 2

    @property
    def stride(self) -> int:
        """The one stride that subsampling has."""
        return self.axes[0].stride

    @property
    def is_native(self) -> bool:
        """Whether it can stay as it is."""
        attrs, kernel = self.match.node.attrs, self.filters.shape[1:-1]
        before, after = (integers(attrs, key) for key in ("pads_before", "pads_after"))
        dilated = max(integers(attrs, "dilations"))
        if (
            dilated > 1
            and self.rank == 3
            and kernel[0] <= MAX_DILATED_KERNEL
            and (kernel[0] - 1) * dilated >= list_kernel_lengths(self.rank)[-1]
        ):
            return not any(before + after) and integers(attrs, "strides") == (1,)
        plain = set(integers(attrs, "strides")) == {1} and dilated == 1
        alike = (
            len(set(kernel)) == 1
            and kernel[0] in list_kernel_lengths(self.rank)
            and before == after
            and max(before) <= 2
        )
        return plain and alike

    @property
    def _dense(self) -> bool:
        """Whether each output looks at all channels."""
        return int(str(self.match.node.attrs["group"])) == 1

    @property
    def fits(self) -> bool:
        """Whether one kernel of the hardware does it alone, with no result too many."""
        plan = self.direct()
        return plan is not None and _count_unwanted(plan) == 0

    def direct(self) -> tuple[DirectPlan, ...] | None:
        """The best kernel of the hardware that does it alone: with fewest results too many, and padding alike, and short."""
        plans = [
            choose_together(
                [plan_direct(a, n) for a in self.axes],
                lambda p: (_count_unwanted(p), len({d.pad for d in p})),
            )
            for n in list_kernel_lengths(self.rank)
        ]
        return min((p for p in plans if p), key=lambda p: (_count_unwanted(p), p[0].length), default=None)

    def copied(self) -> tuple[CopyPlan, ...] | None:
        """The best way by copies of the data, in as few stages as there are."""
        known = list_kernel_lengths(self.rank)[1 if self.rank == 4 else 0 :]
        ways = (
            choose_together([plan_copies(a, known, depth) for a in self.axes], _copy_cost)
            for depth in range(1, MAX_COPY_STAGES + 1)
        )
        return next((plan for plan in ways if plan), None)

    def rewritten(self) -> Sequence[str] | None:
        """The outputs of what stands for the node; None if it can stay."""
        if self.is_native:
            return None
        stride, tensor = self.stride, self.match.new.tensors[self.match.node.inputs[0]]
        if stride > 1 and all(a.offsets == (0,) for a in self.axes):
            small = subsample(self.match.new, tensor.name, stride)
            return self.match.emit(
                "Conv",
                [small, *self.match.node.inputs[1:]],
                {**self.match.node.attrs, "strides": (1,) * len(self.axes)},
            )
        alone, wide = self.direct(), self.match.new.storages.get(self.match.node.outputs[0]) is None
        if alone and self.fits and not (wide and stride > 1):
            return self._alone(alone, stride)
        copies = self.copied() if self._dense else None
        if copies and _count_copies(copies) * self.filters.shape[-1] <= self.device.channels:
            return self._copied(copies, stride)
        if alone and not wide:
            return self._alone(alone, stride)
        kernel, pads = self.filters.shape[1:-1], integers(self.match.node.attrs, "pads_before")
        what = f"kernel {list(kernel)} with stride {stride} and padding {list(pads)}"
        raise RefusedError(
            f"{what} has no exact equivalent of kernels of {list_kernel_lengths(self.rank)[-1]}; make it smaller, or stack smaller ones"
        )

    def _alone(self, plan: Sequence[DirectPlan], stride: int) -> Sequence[str]:
        places = [[(0, place) for place in d.places] for d in plan]
        filters = spread_filters(self.filters, places, plan[0].length, [1] * len(plan))
        pads = tuple(d.pad for d in plan)
        if stride == 1 and _count_unwanted(plan) == 0:
            return replace_filters(self.match, filters, **plain_window(pads))
        name = self.match.new.stored(
            f"{self.match.node.outputs[0]}.full", self.match.new.storages[self.match.node.outputs[0]]
        )
        full = add_convolution(self.match, self.match.node.inputs[0], filters, pads, [name])[0]
        if stride > 1:
            full = subsample(self.match.new, full, stride)
        return crop_to_output(self.match, full, [d.lead for d in plan])

    def _copied(self, plan: Sequence[CopyPlan], stride: int) -> Sequence[str]:
        new = self.match.new
        made, before = self.match.node.inputs[0], [1] * len(plan)
        for stages in zip(*(c.stages for c in plan), strict=True):
            made = add_copies(new, made, stages, before, plan[0].copying)
            before = [len(stage.made) for stage in stages]
        if stride > 1:
            made = subsample(new, made, stride)
        filters = spread_filters(self.filters, [c.places for c in plan], plan[0].length, before)
        return add_convolution(self.match, made, filters, tuple(c.pad for c in plan), self.match.node.outputs)


def _count_copies(plan: Sequence[CopyPlan]) -> int:
    """The most copies of each channel that a stage makes."""
    return max(
        prod(len(stage.made) for stage in stages) for stages in zip(*(c.stages for c in plan), strict=True)
    )


def _count_unwanted(plan: Sequence[DirectPlan]) -> int:
    """Results too many."""
    return sum(d.lead + d.extra for d in plan)


def _copy_cost(plan: tuple[CopyPlan, ...]) -> tuple[int, int]:
    """Fewest channels, then padding alike on rows and columns."""
    return prod(c.copies for c in plan), len({(tuple(s.pad for s in c.stages), c.pad) for c in plan})


def add_convolution(
    match: Match, x: str, filters: Array, pads: Sequence[int], outputs: Sequence[str]
) -> tuple[str, ...]:
    """The node's convolution with other filters over another tensor."""
    node, new = match.node, match.new
    name = new.weight(f"{node.inputs[1]}.formed", filters, new.tensors[node.inputs[1]].quant)
    group = new.shape(x)[-1] // filters.shape[-1]
    return new.add(
        "Conv",
        [x, name, *node.inputs[2:]],
        {**node.attrs, **plain_window(pads), "group": group},
        outputs=outputs,
        like=node,
    )


def spread_filters(
    filters: Array, places: Sequence[Sequence[tuple[int, int]]], length: int, copies: Sequence[int]
) -> Array:
    """Filters over copies of the data: [O, *kernel, I] -> [O, *(length, ...), copies * I].

    places: for each axis and tap the copy and the place in the kernel.  copies: along each axis; the last
    counts fastest.
    """
    channels = filters.shape[-1]
    whole = np.zeros((len(filters), *(length,) * len(places), prod(copies) * channels), filters.dtype)
    for tap in product(*map(range, filters.shape[1:-1])):
        chosen = [axis[t] for axis, t in zip(places, tap, strict=True)]
        copy = int(np.ravel_multi_index([c for c, _ in chosen], tuple(copies)))
        at: tuple[Any, ...] = (
            slice(None),
            *(p for _, p in chosen),
            slice(copy * channels, (copy + 1) * channels),
        )
        whole[at] = filters_at_tap(filters, tap)
    return whole


IMAGE_KERNEL = 3
"""The kernel of an image."""


def pad_wide_line(match: Match) -> Sequence[str] | None:
    """A convolution of three neighbours or fewer over an image, any longer one after copies that pad."""
    node = match.node
    if node.op.name != "Conv" or len(match.shape(0)) != 3 or match.shape(0)[-1] <= PROCESSORS:
        return None
    pad, w = integers(node.attrs, "pads_before")[0], match.new.weights[node.inputs[1]]
    if not pad:
        return None
    if w.shape[1] == IMAGE_KERNEL and pad <= 2:
        return _convolve_as_image(match, w, pad)
    x = node.inputs[0]
    for _ in range(pad):
        x = _pad_by_one(match, x)
    return match.emit("Conv", [x, *node.inputs[1:]], {**node.attrs, **plain_window((0,))})


def _convolve_as_image(match: Match, w: Array, pad: int) -> Sequence[str]:
    """The kernel as the middle column of an image's, which is padded by one column on both sides."""
    node, new = match.node, match.new
    filters = np.zeros((len(w), IMAGE_KERNEL, IMAGE_KERNEL, w.shape[-1]), w.dtype)
    filters[:, :, 1] = w
    weight = new.weight(f"{node.inputs[1]}.image", filters, new.tensors[node.inputs[1]].quant)
    attrs = {**node.attrs, **plain_window((pad, 1))}
    name = new.stored(f"{node.name}.image", new.storages.get(node.outputs[0]))
    made = new.one(
        "Conv",
        [_reshape_to_image(match, node.inputs[0]), weight, *node.inputs[2:]],
        attrs,
        outputs=[name],
        like=node,
    )
    rows = new.shape(made)[1]
    return match.emit("Reshape", [made], {"shape": (1, rows, len(w))})


def _reshape_to_image(match: Match, x: str) -> str:
    _, length, channels = match.new.shape(x)
    return match.new.one("Reshape", [x], {"shape": (1, length, 1, channels)})


def _pad_by_one(match: Match, x: str) -> str:
    """One zero more at both ends."""
    new = match.new
    _, length, channels = new.shape(x)
    weight = new.weight(
        f"{match.node.name}.unit", copying_filters(channels, [[1], [1]], IMAGE_KERNEL), UNIT_QUANT
    )
    name = new.stored(f"{match.node.name}.padded", new.tensors[x].storage)
    made = new.one("Conv", [_reshape_to_image(match, x), weight], plain_window((2, 1)), outputs=[name])
    return new.one("Reshape", [made], {"shape": (1, length + 2, channels)})
