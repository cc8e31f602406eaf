"""Where data lie in the data memories: an offset for all values that share one, so that none is overwritten while it is needed.

Time is counted in layers: a value lives from the layer that writes it to the last one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_target_max78000.network import Layer

TRIES = 20
MOST_TRIES = 100
"""Random orders of packing besides the usual ones: always, and where none of those fits."""


@dataclass(frozen=True)
class Life:
    """Bit m of `memories` for each data memory; the first and the last layer of a value's life."""

    memories: int
    first: int
    last: int


@dataclass(frozen=True)
class Buffer:
    """Values that share an offset.  lead, size: bytes before and after the offset in each memory.

    lives: of its values.

    apart: bytes behind it that nothing may take while it lives.
    """

    lead: int
    size: int
    lives: tuple[Life, ...]
    apart: int = 0


@dataclass(frozen=True)
class Packing:
    """The offset of each buffer, and whether any lies partly over the input of the layer that writes it."""

    offsets: tuple[int, ...]
    overlapping: bool

    def touched(self, buffers: Sequence[Buffer]) -> int:
        """Bytes of all data memories that any buffer takes."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for buffer, offset in zip(buffers, self.offsets, strict=True):
            for memory in {m for life in buffer.lives for m in _bits(life.memories)}:
                spans.setdefault(memory, []).append((offset - buffer.lead, offset + buffer.size))
        return sum(_union(sorted(found)) for found in spans.values())

    def highest(self, buffers: Sequence[Buffer]) -> int:
        """The first byte that no buffer reaches in any data memory."""
        return max(offset + buffer.size for buffer, offset in zip(buffers, self.offsets, strict=True))


def _union(spans: Sequence[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for first, last in spans:
        total += max(0, last - max(first, reached))
        reached = max(reached, last)
    return total


def _bits(mask: int) -> Iterator[int]:
    return (i for i in range(mask.bit_length()) if mask >> i & 1)


def distance(layer: Layer, step_in: int, step_out: int) -> int:
    """How many bytes before its input a layer's output must begin at least to lie over it.

    step_in, step_out: words from one position to the next.  Positions are computed row by row, and written
    when all that they depend on has been read; what only earlier positions depend on may be overwritten.
    Rows that a later position needs are kept even where the hardware has them in its row memory.
    """
    rows, columns = layer.out_dim
    stride = layer.window[2]
    row = np.maximum(np.arange(rows) - layer.pad[0], 0) * stride
    column = (
        np.maximum(np.arange(columns) - layer.pad[1], 0) * stride
        if layer.dim[1] > 1
        else np.zeros(columns, np.int64)
    )
    needed = (row[:, None] * layer.dim[1] + column).ravel()
    needed = np.minimum.accumulate(needed[::-1])[::-1]
    return 4 * int((step_out * np.arange(1, needed.size + 1) - step_in * needed).max())


@dataclass(frozen=True)
class Over:
    """Two buffers, input and output of the same layer: the output may begin `distance` bytes before the input, or earlier."""

    layer: int
    distance: int


class Packer:
    """Packs buffers into memories of `capacity` bytes.

    over: by the numbers of an input and an output buffer.
    """

    def __init__(
        self, buffers: Sequence[Buffer], capacity: int, over: Mapping[tuple[int, int], Over]
    ) -> None:
        self.buffers = buffers
        self.capacity = capacity
        self.over = over
        count = range(len(buffers))
        self.forbidden = [
            {j: span for j in count if i != j and (span := self._forbidden(i, j))} for i in count
        ]

    def pack(self) -> Packing | None:
        """The packing that takes the least memory among several; None where none fits."""
        found: list[tuple[int, ...]] = []
        for number, order in enumerate(self._orders()):
            if found and number > TRIES:
                break
            if offsets := self._first_fit(order):
                found.append(offsets)
        if not found:
            return None
        packings = [Packing(offsets, self._overlapping(offsets)) for offsets in found]
        return min(packings, key=lambda p: (p.touched(self.buffers), p.highest(self.buffers)))

    def _forbidden(self, i: int, j: int) -> tuple[int, int] | None:
        """Where buffer i may not begin, as bounds counted from the offset of j.

        The bounds themselves are allowed.
        """
        a, b = self.buffers[i], self.buffers[j]
        common = [
            (x, y)
            for x in a.lives
            for y in b.lives
            if x.memories & y.memories and x.first <= y.last and y.first <= x.last
        ]
        if not common:
            return None
        before, after = a.size + a.apart + b.lead, b.size + b.apart + a.lead
        if self._may_overlap(self.over.get((j, i)), [(y, x) for x, y in common]):
            before = min(before, self.over[j, i].distance)
        if self._may_overlap(self.over.get((i, j)), common):
            after = min(after, self.over[i, j].distance)
        return -before, after

    def _may_overlap(self, over: Over | None, common: Sequence[tuple[Life, Life]]) -> bool:
        """Whether all that two buffers have in common is one layer that reads the first for the last time and begins the second."""
        return over is not None and all(read.last == over.layer == written.first for read, written in common)

    def _orders(self) -> Iterator[list[int]]:
        numbers, buffers = range(len(self.buffers)), self.buffers
        sizes = [b.lead + b.size for b in buffers]
        starts, ends = (
            [min(x.first for x in b.lives) for b in buffers],
            [max(x.last for x in b.lives) for b in buffers],
        )
        yield sorted(numbers, key=lambda i: -sizes[i])
        yield sorted(numbers, key=lambda i: -sizes[i] * (ends[i] - starts[i] + 1))
        yield sorted(numbers, key=lambda i: (-ends[i], -sizes[i]))
        yield sorted(numbers, key=lambda i: (starts[i], -sizes[i]))
        yield sorted(numbers, key=lambda i: (starts[i] - ends[i], -sizes[i]))
        generator = np.random.default_rng(0)
        for _ in range(MOST_TRIES):
            yield generator.permutation(len(buffers)).tolist()

    def _first_fit(self, order: Sequence[int]) -> tuple[int, ...] | None:
        """Each buffer at the lowest offset that those placed before it leave."""
        offsets: dict[int, int] = {}
        for i in order:
            buffer = self.buffers[i]
            spans = sorted(
                (offsets[j] + first, offsets[j] + last)
                for j, (first, last) in self.forbidden[i].items()
                if j in offsets
            )
            offset = buffer.lead
            for first, last in spans:
                if first < offset < last:
                    offset = last
            if offset + buffer.size + buffer.apart > self.capacity:
                return None
            offsets[i] = offset
        return tuple(offsets[i] for i in range(len(order)))

    def _overlapping(self, offsets: Sequence[int]) -> bool:
        return any(
            offsets[i] - self.buffers[i].lead < offsets[j] + self.buffers[j].size
            and offsets[j] - self.buffers[j].lead < offsets[i] + self.buffers[i].size
            for i, j in self.over
            if j in self.forbidden[i]
        )
