"""Copies data by convolutions: whole, moved, subsampled, or cropped.

The hardware has no instruction that moves data. A convolution whose weights are 0 and 1 copies it exactly:
its sums are the data itself, and the shift of a layer undoes the unit of the accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mace_core.attributes import Attribute, AttributeValues
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Quant, Storage
from mace_core.ops.slice import SliceAttributes
from mace_core.rewrite import Match
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.window_plans import NEIGHBORS, CopyStage, list_kernel_lengths

UNIT_QUANT = Quant.of(1.0)
"""The storage of weights that are 0 and 1."""

ROW_RANK = 2
"""Axes of data without rows and columns."""

LINE_RANK = 3
"""Axes of a line: batch, length, channels."""

IMAGE_AXES = 2
"""Spatial axes of an image."""


def plain_window(pads: Sequence[int]) -> dict[str, Attribute]:
    """Return window attributes as the hardware has them: no stride, equal padding on both sides."""
    ones = (1,) * len(pads)
    return {"strides": ones, "dilations": ones, "pads_before": tuple(pads), "pads_after": tuple(pads)}


def filters_at_tap(filters: Array, tap: Sequence[int]) -> Array:
    """Return one position of the kernel: [O, I]."""
    index: tuple[Any, ...] = (slice(None), *tap)
    return np.asarray(filters[index])


def copying_filters(channels: int, places: Sequence[Sequence[int]], length: int) -> Array:
    """Make filters [copies * C, *(length, ...), C] that copy every channel once for each place in the kernel.

    places: along each spatial axis; a place beside the middle moves the data.
    """
    count = prod(map(len, places))
    filters = np.zeros((count, channels, *(length,) * len(places), channels), np.int8)
    for copy, place in enumerate(product(*places)):
        index_of: tuple[Any, ...] = (copy, slice(None), *place)
        filters[index_of] = np.eye(channels, dtype=np.int8)
    return filters.reshape(count * channels, *filters.shape[2:])


def copy_as_layer(match: Match, *, outputs: Sequence[str] | None = None, **attrs: object) -> Sequence[str]:
    """Replace a node by a layer that copies its input; attrs: other than those of a plain window."""
    node, builder, shape = match.node, match.builder, match.shape(0)
    names = outputs or node.outputs
    if len(shape) == ROW_RANK:
        weight = builder.weight(f"{node.name}.unit", np.eye(shape[-1], dtype=np.int8), UNIT_QUANT)
        return builder.add("MatMul", [node.inputs[0], weight], attrs, outputs=names, like=node)
    axes = len(shape) - 2
    weight = builder.weight(f"{node.name}.unit", copying_filters(shape[-1], [[0]] * axes, 1), UNIT_QUANT)
    window = {**plain_window((0,) * axes), **attrs}
    return builder.add("Conv", [node.inputs[0], weight], window, outputs=names, like=node)


def add_copies(
    builder: Builder, x: str, stages: Sequence[CopyStage], before: Sequence[int], length: int
) -> str:
    """Add one stage of moved copies of a tensor of copies; return its name.

    stages: along each spatial axis.  before: how many copies the tensor holds along each axis, the last
    counting fastest.  length: of the kernels that copy.
    """
    tensor, after = builder.tensors[x], [len(stage.sources) for stage in stages]
    channels = tensor.shape[-1] // prod(before)
    filters = np.zeros((prod(after), channels, *(length,) * len(stages), prod(before), channels), np.int8)
    for copy, sources in enumerate(product(*(stage.sources for stage in stages))):
        source = int(np.ravel_multi_index([s for s, _ in sources], tuple(before)))
        index_of: tuple[Any, ...] = (copy, slice(None), *(place for _, place in sources), source)
        filters[index_of] = np.eye(channels, dtype=np.int8)
    values = filters.reshape(prod(after) * channels, *(length,) * len(stages), -1)
    weight = builder.weight(f"{x}.copies.weight", values, UNIT_QUANT)
    window = plain_window([stage.pad for stage in stages])
    name = builder.reserve_output(f"{x}.copies", require_bytes(tensor.storage, x))
    return builder.one("Conv", [x, weight], window, outputs=[name])


def require_bytes(storage: Storage | None, name: str) -> Storage:
    """Return the storage of data that a layer can read.

    NoEquivalentError: it is a sum of 32 bits. Processors read bytes, so such a sum can only be an output.
    """
    if storage is None or storage.dtype is not DType.I8:
        raise NoEquivalentError(
            f"{name!r} is a sum of 32 bits, which no layer can read; quantize it to 8 bits"
        )
    return storage


def subsample(builder: Builder, x: str, stride: int) -> str:
    """Add a pool of size 1, by which the hardware takes every `stride`th row and column."""
    axes = len(builder.shape(x)) - 2
    ones, zeros = (1,) * axes, (0,) * axes
    window = {
        "kernel": ones,
        "strides": (stride,) * axes,
        "pads_before": zeros,
        "pads_after": zeros,
        "dilations": ones,
    }
    name = builder.reserve_output(f"{x}.subsampled", builder.tensors[x].storage)
    return builder.one("MaxPool", [x], window, outputs=[name])


def crop_to_output(match: Match, x: str, starts: Sequence[int]) -> Sequence[str]:
    """Take a part of a tensor as large as the node's result, from these rows and columns on."""
    tensors = [match.builder.tensors.get(name) for name in match.node.inputs]
    shape = match.node.op.infer([tensor and tensor.real for tensor in tensors], match.node.attrs)[0][1]
    if shape == match.builder.shape(x):
        return [x]
    return match.emit("Slice", [x], {"starts": (0, *starts, 0), "sizes": shape, "steps": (1,) * len(shape)})


class _Cut(NamedTuple):
    """Elements to cut off along one axis, in front and behind."""

    before: int
    after: int

    @property
    def total(self) -> int:
        """Elements on both sides."""
        return self.before + self.after


def crop_by_convolution(match: Match) -> Sequence[str] | None:
    """Rewrite a Slice of rows and columns to convolutions that copy, whose kernels lose what is cut off."""
    node = match.node
    if node.op.name != "Slice":
        return None
    shape = match.shape(0)
    part = node.attributes(SliceAttributes)
    starts, sizes, steps = part.starts, part.sizes, part.steps
    takes_all_channels = not starts[0] and not starts[-1] and sizes[-1] == shape[-1]
    if not takes_all_channels or set(steps) != {1} or len(shape) == ROW_RANK:
        problem = "it takes a part that the hardware cannot take"
        raise NoEquivalentError(f"{problem}; take rows and columns only, each next to the other")
    spans = zip(shape[1:-1], starts[1:-1], sizes[1:-1], strict=True)
    cuts = [_Cut(start, length - start - size) for length, start, size in spans]
    x = node.inputs[0]
    require_bytes(match.builder.tensors[x].storage, x)
    while any(cut.total for cut in cuts):
        # An odd number of rows cannot be lost by a kernel of 3, which loses two; a line has longer kernels.
        if len(cuts) == IMAGE_AXES and any(cut.total % 2 for cut in cuts):
            x, cuts = _crop_odd(match, x, cuts)
        else:
            x, cuts = _crop_even(match, x, cuts)
    return [x] if x != node.inputs[0] else None


def _crop_even(match: Match, x: str, cuts: Sequence[_Cut]) -> tuple[str, list[_Cut]]:
    """Cut off as much as one kernel without padding loses; return the tensor and what is left to cut."""
    length = NEIGHBORS
    if len(cuts) != IMAGE_AXES:
        length = min(list_kernel_lengths(LINE_RANK)[-1], 1 + cuts[0].total)
    pads, places, left = [], [], []
    for cut in cuts:
        if not cut.total:  # the other axis keeps its size: the middle of the kernel, padded by half of it
            pads.append(length // 2)
            places.append(length // 2)
            left.append(cut)
            continue
        # The element that the kernel copies decides how many of the lost ones lie in front.
        place = min(cut.before, length - 1)
        pads.append(0)
        places.append(place)
        left.append(_Cut(cut.before - place, cut.after - (length - 1 - place)))
    if min(cut.after for cut in left) < 0:
        raise NoEquivalentError("it cuts off a single row or column in front of two; cut an even number")
    filters = copying_filters(match.builder.shape(x)[-1], [[place] for place in places], length)
    return _add_copy(match, x, "Conv", filters, plain_window(pads)), left


def _crop_odd(match: Match, x: str, cuts: Sequence[_Cut]) -> tuple[str, list[_Cut]]:
    """Cut off one row or column: double them by a transposed convolution that loses two, take every second.

    The transposed convolution makes 2 n + 2 - 2 pad rows of n. With a pad of 2 these are 2 n - 2, so
    every second of them is one less than n.
    """
    pads, places, left = [], [], []
    for cut in cuts:
        if cut.total % 2 == 0:
            pads.append(1)
            places.append(1)
            left.append(cut)
        elif not cut.after:  # the tap of the kernel decides on which side the row is lost
            pads.append(2)
            places.append(0)
            left.append(_Cut(cut.before - 1, cut.after))
        else:
            pads.append(2)
            places.append(2)
            left.append(_Cut(cut.before, cut.after - 1))
    filters = copying_filters(match.builder.shape(x)[-1], [[place] for place in places], NEIGHBORS)
    window = {**plain_window(pads), "strides": (2, 2), "output_padding": (1, 1)}
    return subsample(match.builder, _add_copy(match, x, "ConvTranspose", filters, window), 2), left


def _add_copy(match: Match, x: str, op: str, filters: Array, attrs: AttributeValues) -> str:
    """Add a convolution that copies, in the storage of its input."""
    builder = match.builder
    weight = builder.weight(f"{match.node.name}.unit", filters, UNIT_QUANT)
    name = builder.reserve_output(f"{match.node.name}.cut", builder.tensors[x].storage)
    return builder.one(op, [x, weight], attrs, outputs=[name])
