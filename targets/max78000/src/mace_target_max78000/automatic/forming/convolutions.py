"""Convolutions of any kernel, stride, padding and grouping as those that the hardware has.

Copies of data where one is not enough.

A rule changes what is computed where, never a number: see `windows` for why each plan is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Attr, DType, Node, Quant, Storage
from mace_core.ops.arguments import integers
from mace_core.ops.windows import Windows
from mace_core.rewrite import Match
from mace_target_max78000.automatic.forming.refusal import RefusedError
from mace_target_max78000.automatic.forming.windows import (
    Axis,
    Copied,
    Direct,
    Stage,
    copied,
    direct,
    together,
)
from mace_target_max78000.device import Device

UNIT = Quant.of(1.0)
"""The storage of weights that are 0 and 1."""

DILATED = 3
"""The longest kernel along a line that the hardware dilates beyond its longest kernel; it pads none."""

MOST_STAGES = 4
"""Stages of copies that are tried."""


def lengths(rank: int) -> tuple[int, ...]:
    """Lengths of kernels that the hardware has; rank: of the data with batch and channels."""
    return (1, 3) if rank == 4 else tuple(range(1, 10))


def axes_of(node: Node, x: Sequence[int], kernel: Sequence[int], count: Sequence[int]) -> tuple[Axis, ...]:
    """What a convolution wants along each spatial axis.

    x, kernel, count: spatial sizes of its input, filters and output.
    """
    windows = Windows.of(tuple(kernel), node.attrs)
    found = []
    for n, k, c, s, before, d in zip(
        x, kernel, count, windows.strides, windows.before, windows.dilations, strict=True
    ):
        found.append(Axis(n, c, s, tuple(d * tap - before for tap in range(k))))
    return tuple(found)


def subsampled_alike(axes: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes with one stride, which does not matter along an axis of one result; None if two are needed."""
    strides = {axis.stride for axis in axes if axis.count > 1} or {1}
    return tuple(replace(axis, stride=min(strides)) for axis in axes) if len(strides) == 1 else None


def rule(device: Device) -> Callable[[Match], Sequence[str] | None]:
    """Rewrites each Conv that the device lacks."""

    def convolution(match: Match) -> Sequence[str] | None:
        if match.node.op.name != "Conv":
            return None
        x, w = match.shape(0), match.new.weights[match.node.inputs[1]]
        group = int(str(match.node.attrs["group"]))
        count = Windows.of(w.shape[1:-1], match.node.attrs).count(x[1:-1])
        axes = subsampled_alike(axes_of(match.node, x[1:-1], w.shape[1:-1], count))
        if axes is None:
            strides = integers(match.node.attrs, "strides")
            raise RefusedError(
                f"its strides {list(strides)} differ; the hardware has one for rows and columns"
            )
        job = Job(match, axes, w, device)
        if group > 1 and not (device.pipelined and group == x[-1] == w.shape[0] and job.direct()):
            return replaced(match, dense(w, group), group=1)
        return job.rewritten()

    return convolution


def replaced(match: Match, filters: Array, **attrs: object) -> tuple[str, ...]:
    """The node with other filters of the same storage."""
    w = match.node.inputs[1]
    name = match.new.weight(f"{w}.formed", filters, match.new.tensors[w].quant)
    return match.emit(
        match.node.op, [match.node.inputs[0], name, *match.node.inputs[2:]], {**match.node.attrs, **attrs}
    )


def dense(filters: Array, group: int) -> Array:
    """Filters over all channels, zero where a group does not look.  filters: [O, *kernel, I / group]."""
    outputs, width = len(filters) // group, filters.shape[-1]
    whole = np.zeros((*filters.shape[:-1], width * group), filters.dtype)
    for g in range(group):
        rows = slice(g * outputs, (g + 1) * outputs)
        whole[rows, ..., g * width : (g + 1) * width] = filters[rows]
    return whole


@dataclass(frozen=True, eq=False)
class Job:
    """A convolution and what the hardware has for it.  filters: stored elements, [O, *kernel, I / group]."""

    match: Match
    axes: tuple[Axis, ...]
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
            and kernel[0] <= DILATED
            and (kernel[0] - 1) * dilated >= lengths(self.rank)[-1]
        ):
            return not any(before + after) and integers(attrs, "strides") == (1,)
        plain = set(integers(attrs, "strides")) == {1} and dilated == 1
        alike = (
            len(set(kernel)) == 1 and kernel[0] in lengths(self.rank) and before == after and max(before) <= 2
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
        return plan is not None and _unwanted(plan) == 0

    def direct(self) -> tuple[Direct, ...] | None:
        """The best kernel of the hardware that does it alone: with fewest results too many, and padding alike, and short."""
        plans = [
            together([direct(a, n) for a in self.axes], lambda p: (_unwanted(p), len({d.pad for d in p})))
            for n in lengths(self.rank)
        ]
        return min((p for p in plans if p), key=lambda p: (_unwanted(p), p[0].length), default=None)

    def copied(self) -> tuple[Copied, ...] | None:
        """The best way by copies of the data, in as few stages as there are."""
        known = lengths(self.rank)[1 if self.rank == 4 else 0 :]
        ways = (
            together([copied(a, known, depth) for a in self.axes], _cost)
            for depth in range(1, MOST_STAGES + 1)
        )
        return next((plan for plan in ways if plan), None)

    def rewritten(self) -> Sequence[str] | None:
        """The outputs of what stands for the node; None if it can stay."""
        if self.is_native:
            return None
        stride, tensor = self.stride, self.match.new.tensors[self.match.node.inputs[0]]
        if stride > 1 and all(a.offsets == (0,) for a in self.axes):
            small = subsampled(self.match.new, tensor.name, stride)
            return self.match.emit(
                "Conv",
                [small, *self.match.node.inputs[1:]],
                {**self.match.node.attrs, "strides": (1,) * len(self.axes)},
            )
        alone, wide = self.direct(), self.match.new.storages.get(self.match.node.outputs[0]) is None
        if alone and self.fits and not (wide and stride > 1):
            return self._alone(alone, stride)
        copies = self.copied() if self._dense else None
        if copies and _channels(copies) * self.filters.shape[-1] <= self.device.channels:
            return self._copied(copies, stride)
        if alone and not wide:
            return self._alone(alone, stride)
        kernel, pads = self.filters.shape[1:-1], integers(self.match.node.attrs, "pads_before")
        what = f"kernel {list(kernel)} with stride {stride} and padding {list(pads)}"
        raise RefusedError(
            f"{what} has no exact equivalent of kernels of {lengths(self.rank)[-1]}; make it smaller, or stack smaller ones"
        )

    def _alone(self, plan: Sequence[Direct], stride: int) -> Sequence[str]:
        places = [[(0, place) for place in d.places] for d in plan]
        filters = spread(self.filters, places, plan[0].length, [1] * len(plan))
        pads = tuple(d.pad for d in plan)
        if stride == 1 and _unwanted(plan) == 0:
            return replaced(self.match, filters, **plain(pads))
        name = self.match.new.stored(
            f"{self.match.node.outputs[0]}.full", self.match.new.storages[self.match.node.outputs[0]]
        )
        full = convolved(self.match, self.match.node.inputs[0], filters, pads, [name])[0]
        if stride > 1:
            full = subsampled(self.match.new, full, stride)
        return cropped(self.match, full, [d.lead for d in plan])

    def _copied(self, plan: Sequence[Copied], stride: int) -> Sequence[str]:
        new = self.match.new
        made, before = self.match.node.inputs[0], [1] * len(plan)
        for stages in zip(*(c.stages for c in plan), strict=True):
            made = copies(new, made, stages, before, plan[0].copying)
            before = [len(stage.made) for stage in stages]
        if stride > 1:
            made = subsampled(new, made, stride)
        filters = spread(self.filters, [c.places for c in plan], plan[0].length, before)
        return convolved(self.match, made, filters, tuple(c.pad for c in plan), self.match.node.outputs)


def _channels(plan: Sequence[Copied]) -> int:
    """The most copies of each channel that a stage makes."""
    return max(
        prod(len(stage.made) for stage in stages) for stages in zip(*(c.stages for c in plan), strict=True)
    )


def _unwanted(plan: Sequence[Direct]) -> int:
    """Results too many."""
    return sum(d.lead + d.extra for d in plan)


def _cost(plan: tuple[Copied, ...]) -> tuple[int, int]:
    """Fewest channels, then padding alike on rows and columns."""
    return prod(c.copies for c in plan), len({(tuple(s.pad for s in c.stages), c.pad) for c in plan})


def plain(pads: Sequence[int]) -> dict[str, Attr]:
    """Attributes of a convolution as the hardware has it."""
    ones = (1,) * len(pads)
    return {"strides": ones, "dilations": ones, "pads_before": tuple(pads), "pads_after": tuple(pads)}


def convolved(
    match: Match, x: str, filters: Array, pads: Sequence[int], outputs: Sequence[str]
) -> tuple[str, ...]:
    """The node's convolution with other filters over another tensor."""
    node, new = match.node, match.new
    name = new.weight(f"{node.inputs[1]}.formed", filters, new.tensors[node.inputs[1]].quant)
    group = new.shape(x)[-1] // filters.shape[-1]
    return new.add(
        "Conv",
        [x, name, *node.inputs[2:]],
        {**node.attrs, **plain(pads), "group": group},
        outputs=outputs,
        like=node,
    )


def spread(
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
        whole[at] = at_tap(filters, tap)
    return whole


def at_tap(filters: Array, tap: Sequence[int]) -> Array:
    """One position of the kernel: [O, I]."""
    index: tuple[Any, ...] = (slice(None), *tap)
    return np.asarray(filters[index])


def unit_filters(channels: int, places: Sequence[Sequence[int]], length: int) -> Array:
    """Filters that copy every channel once for each place in the kernel: [copies * C, *(length, ...), C]."""
    count = prod(map(len, places))
    whole = np.zeros((count, channels, *(length,) * len(places), channels), np.int8)
    for copy, place in enumerate(product(*places)):
        at: tuple[Any, ...] = (copy, slice(None), *place)
        whole[at] = np.eye(channels, dtype=np.int8)
    return whole.reshape(count * channels, *whole.shape[2:])


def copies(new: Builder, x: str, stages: Sequence[Stage], before: Sequence[int], length: int) -> str:
    """Copies of a tensor of copies, moved by kernels.

    before: how many copies it holds along each axis, the last counting fastest.
    """
    tensor, after = new.tensors[x], [len(stage.made) for stage in stages]
    channels = tensor.shape[-1] // prod(before)
    whole = np.zeros((prod(after), channels, *(length,) * len(stages), prod(before), channels), np.int8)
    for copy, made in enumerate(product(*(stage.made for stage in stages))):
        source = int(np.ravel_multi_index([s for s, _ in made], tuple(before)))
        at: tuple[Any, ...] = (copy, slice(None), *(place for _, place in made), source)
        whole[at] = np.eye(channels, dtype=np.int8)
    filters = new.weight(
        f"{x}.copies.weight", whole.reshape(prod(after) * channels, *(length,) * len(stages), -1), UNIT
    )
    pads = plain([stage.pad for stage in stages])
    return new.one("Conv", [x, filters], pads, outputs=[new.stored(f"{x}.copies", native(tensor.storage, x))])


def native(storage: Storage | None, name: str) -> Storage:
    """The storage of data that can be copied; RefusedError for sums of 32 bits."""
    if storage is None or storage.dtype is not DType.I8:
        raise RefusedError(f"{name} is a sum of 32 bits, with which no layer goes on; quantise it to 8 bits")
    return storage


def subsampled(new: Builder, x: str, stride: int) -> str:
    """Every so many elements along each spatial axis, as the pool of size 1 that the hardware has for it."""
    ones, zeros = (1,) * (len(new.shape(x)) - 2), (0,) * (len(new.shape(x)) - 2)
    attrs = {
        "kernel": ones,
        "strides": tuple(stride for _ in ones),
        "pads_before": zeros,
        "pads_after": zeros,
        "dilations": ones,
    }
    return new.one("MaxPool", [x], attrs, outputs=[new.stored(f"{x}.subsampled", new.tensors[x].storage)])


def cropped(match: Match, x: str, starts: Sequence[int]) -> Sequence[str]:
    """A part of a tensor as large as the node's result, from these rows and columns on."""
    shape = match.node.op.infer(
        [t and t.real for t in (match.new.tensors.get(i) for i in match.node.inputs)], match.node.attrs
    )[0][1]
    if shape == match.new.shape(x):
        return [x]
    return match.emit("Slice", [x], {"starts": (0, *starts, 0), "sizes": shape, "steps": (1,) * len(shape)})
