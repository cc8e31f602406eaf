"""Copies data by convolutions: whole, moved, subsampled, or cropped.

The hardware has no instruction that moves data. A convolution whose weights are 0 and 1 copies it exactly,
because the shift of a layer can undo the unit of its accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Attr, DType, Quant, Storage
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match
from mace_target_max78000.legalize.refusals import RefusedError
from mace_target_max78000.legalize.window_plans import CopyStage, list_kernel_lengths

UNIT_QUANT = Quant.of(1.0)
"""The storage of weights that are 0 and 1."""


def plain_window(pads: Sequence[int]) -> dict[str, Attr]:
    """Attributes of a convolution as the hardware has it."""
    ones = (1,) * len(pads)
    return {"strides": ones, "dilations": ones, "pads_before": tuple(pads), "pads_after": tuple(pads)}


def filters_at_tap(filters: Array, tap: Sequence[int]) -> Array:
    """One position of the kernel: [O, I]."""
    index: tuple[Any, ...] = (slice(None), *tap)
    return np.asarray(filters[index])


def copying_filters(channels: int, places: Sequence[Sequence[int]], length: int) -> Array:
    """Filters that copy every channel once for each place in the kernel: [copies * C, *(length, ...), C]."""
    count = prod(map(len, places))
    whole = np.zeros((count, channels, *(length,) * len(places), channels), np.int8)
    for copy, place in enumerate(product(*places)):
        at: tuple[Any, ...] = (copy, slice(None), *place)
        whole[at] = np.eye(channels, dtype=np.int8)
    return whole.reshape(count * channels, *whole.shape[2:])


def add_copies(new: Builder, x: str, stages: Sequence[CopyStage], before: Sequence[int], length: int) -> str:
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
        f"{x}.copies.weight", whole.reshape(prod(after) * channels, *(length,) * len(stages), -1), UNIT_QUANT
    )
    pads = plain_window([stage.pad for stage in stages])
    return new.one(
        "Conv", [x, filters], pads, outputs=[new.stored(f"{x}.copies", require_bytes(tensor.storage, x))]
    )


def require_bytes(storage: Storage | None, name: str) -> Storage:
    """The storage of data that can be copied; RefusedError for sums of 32 bits."""
    if storage is None or storage.dtype is not DType.I8:
        raise RefusedError(f"{name} is a sum of 32 bits, with which no layer goes on; quantise it to 8 bits")
    return storage


def subsample(new: Builder, x: str, stride: int) -> str:
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


def crop_to_output(match: Match, x: str, starts: Sequence[int]) -> Sequence[str]:
    """A part of a tensor as large as the node's result, from these rows and columns on."""
    shape = match.node.op.infer(
        [t and t.real for t in (match.new.tensors.get(i) for i in match.node.inputs)], match.node.attrs
    )[0][1]
    if shape == match.new.shape(x):
        return [x]
    return match.emit("Slice", [x], {"starts": (0, *starts, 0), "sizes": shape, "steps": (1,) * len(shape)})


def crop_by_convolution(match: Match) -> Sequence[str] | None:
    """Rows and columns cut off by convolutions that copy."""
    node = match.node
    if node.op.name != "Slice":
        return None
    shape, starts, sizes, steps = (
        match.shape(0),
        *(integers(node.attrs, key) for key in ("starts", "sizes", "steps")),
    )
    if starts[0] or starts[-1] or sizes[-1] != shape[-1] or set(steps) != {1} or len(shape) == 2:
        raise RefusedError(
            "it takes a part that the hardware cannot; take rows and columns only, each next to the other"
        )
    cuts = [(b, n - b - m) for n, b, m in zip(shape[1:-1], starts[1:-1], sizes[1:-1], strict=True)]
    x = node.inputs[0]
    require_bytes(match.new.tensors[x].storage, x)
    while any(b + a for b, a in cuts):
        odd = any((b + a) % 2 for b, a in cuts)
        if odd and len(cuts) == 2:
            x, cuts = _crop_odd(match, x, cuts)
        else:
            x, cuts = _crop_even(match, x, cuts)
    return [x] if x != node.inputs[0] else None


def _crop_even(match: Match, x: str, cuts: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Up to as many as a kernel without padding leaves out, cut at once."""
    rank = len(cuts)
    length = 3 if rank == 2 else min(list_kernel_lengths(3)[-1], 1 + sum(cuts[0]))
    pads = [0 if b + a else length // 2 for b, a in cuts]
    places = [min(b, length - 1) if b + a else length // 2 for b, a in cuts]
    left = [
        (b - p, a - (length - 1 - p)) if b + a else (0, 0) for (b, a), p in zip(cuts, places, strict=True)
    ]
    if min(a for _, a in left) < 0:  # the kernel leaves out more behind than wanted: take more in front
        raise RefusedError("it cuts off a single row or column in front of two; cut an even number")
    return _add_copy(
        match,
        x,
        "Conv",
        copying_filters(match.new.shape(x)[-1], [[p] for p in places], length),
        plain_window(pads),
    ), left


def _crop_odd(match: Match, x: str, cuts: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """One row or column: doubled by a transposed convolution whose padding cuts off two, then every second taken."""
    pads, places, left = [], [], []
    for before, after in cuts:
        odd = (before + after) % 2
        front = odd and not after
        pads.append(2 if odd else 1)
        places.append(0 if front else 2 if odd else 1)
        left.append((before - 1, after) if front else (before, after - odd))
    filters = copying_filters(match.new.shape(x)[-1], [[p] for p in places], 3)
    attrs = {**plain_window(pads), "strides": (2, 2), "output_padding": (1, 1)}
    return subsample(match.new, _add_copy(match, x, "ConvTranspose", filters, attrs), 2), left


def _add_copy(match: Match, x: str, op: str, filters: Array, attrs: object) -> str:
    new = match.new
    assert isinstance(attrs, dict)
    weight = new.weight(f"{match.node.name}.unit", filters, UNIT_QUANT)
    return new.one(
        op, [x, weight], attrs, outputs=[new.stored(f"{match.node.name}.cut", new.tensors[x].storage)]
    )
