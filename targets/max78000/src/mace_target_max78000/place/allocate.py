"""Allocates memory: the first slot of every group of values, and the offset of every region.

A value's slots are the processors of its readers, and decide whose weight memory and which data memories are
in use. Offsets are chosen after slots, because only values in the same data memories can be in each other's
way. Time is counted in layers: a value lives from the layer that writes it to the last one that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import Layer
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, WORD_BYTES


@dataclass(frozen=True)
class GroupDemand:
    """What a part of a group takes, wherever the group begins.

    pattern: bit i for slot i of the group.  words: of weight memory in each of these processors.
    size: bytes of data memory, from layer `first` to layer `last`.
    """

    pattern: int
    words: int = 0
    size: int = 0
    first: int = 0
    last: int = 0


class SlotAim(Enum):
    """What is kept small when processors are chosen."""

    TOUCHED = "bytes of data memory that are ever in use"
    DATA = "the fullest data memory"
    BOTH = "the fullest memory of weights or data"
    WEIGHTS = "the fullest weight memory"


@dataclass(frozen=True)
class MemoryCapacity:
    """Quadrants that may be used, words of a processor's weight memory, bytes of a data memory, layers."""

    quadrants: int
    words: int
    size: int
    layers: int


@dataclass(frozen=True)
class FixedGroups:
    """What is known of groups before.  first: the group that begins at slot 0.

    parked: groups that no layer reads.

    Quadrants work only where layers read; parked groups are to lie in those.
    """

    first: int | None
    parked: frozenset[int]


def choose_slots(
    groups: Mapping[int, Sequence[GroupDemand]], fixed: FixedGroups, capacity: MemoryCapacity, aim: SlotAim
) -> dict[int, int]:
    """Choose the first slot of each group, large groups first, each where the fullest memory stays emptiest.

    None of the groups has more slots than the quadrants have.
    """
    load = _MemoryLoad(capacity, aim)
    starts_of: dict[int, int] = {}
    working = 0
    # The group that must begin at slot 0 first; parked groups last, when it is known which quadrants work;
    # large ones before small ones, because these fit into what is left.
    for group in sorted(groups, key=lambda g: (g != fixed.first, g in fixed.parked, -load.weight(groups[g]))):
        pattern = _join_patterns(groups[group])
        last = 0 if group == fixed.first else capacity.quadrants * PER_QUADRANT - pattern.bit_length()
        # A value begins with a whole word, which is that of four slots.
        starts: Sequence[int] = range(0, last + 1, PER_MEMORY)
        if group in fixed.parked:
            starts = [start for start in starts if not _quadrants_of(pattern << start) & ~working] or starts
        start = min(starts, key=lambda start: (load.cost(groups[group], start), start))
        load.add(groups[group], start)
        working |= _quadrants_of(pattern << start)
        starts_of[group] = start
    return starts_of


def _join_patterns(demands: Sequence[GroupDemand]) -> int:
    mask = 0
    for demand in demands:
        mask |= demand.pattern
    return mask


def _quadrants_of(mask: int) -> int:
    """Return a bit for each quadrant that slots lie in."""
    return sum(1 << q for q in range(QUADRANTS) if mask >> q * PER_QUADRANT & (1 << PER_QUADRANT) - 1)


class _MemoryLoad:
    """How full memories are, as shares: weights by processor, data by layer and data memory."""

    def __init__(self, capacity: MemoryCapacity, aim: SlotAim) -> None:
        self.capacity, self.aim = capacity, aim
        self.words = np.zeros(PROCESSORS)
        self.data = np.zeros((capacity.layers + 1, PROCESSORS // PER_MEMORY))

    def weight(self, demands: Sequence[GroupDemand]) -> float:
        """Return how much a group takes of all memories."""
        words = sum(d.words * d.pattern.bit_count() for d in demands) / self.capacity.words
        data = (
            sum(d.size * _memory_numbers(d.pattern).size * (d.last - d.first + 1) for d in demands)
            / self.capacity.size
        )
        return {SlotAim.WEIGHTS: words, SlotAim.BOTH: words + data}.get(self.aim, data)

    def cost(self, demands: Sequence[GroupDemand], start: int) -> tuple[float, ...]:
        """Return what a group would cost if it began at a slot; the first number counts first."""
        words, data = self.with_group(demands, start)
        mask = _join_patterns(demands) << start
        group_words = words[_slot_numbers(mask)]
        peaks = data.max(axis=0)
        fullest = float(peaks[_memory_numbers(mask)].max())
        heaviest = float(group_words.max())
        # A full memory only counts where it is over-full; below that, fewer bytes in use are better.
        if self.aim is SlotAim.TOUCHED:
            return max(fullest, 1.0), float(peaks.sum()), heaviest, float(group_words.sum())
        worst = {SlotAim.DATA: fullest, SlotAim.WEIGHTS: heaviest}.get(self.aim, max(fullest, heaviest))
        return worst, float(group_words.sum())

    def with_group(self, demands: Sequence[GroupDemand], start: int) -> tuple[Array, Array]:
        """Return weights and data if a group began at a slot."""
        words, data = self.words.copy(), self.data.copy()
        for demand in demands:
            words[_slot_numbers(demand.pattern << start)] += demand.words / self.capacity.words
            data[demand.first : demand.last + 1, _memory_numbers(demand.pattern << start)] += (
                demand.size / self.capacity.size
            )
        return words, data

    def add(self, demands: Sequence[GroupDemand], start: int) -> None:
        """Let a group begin at a slot."""
        self.words, self.data = self.with_group(demands, start)


def _slot_numbers(mask: int) -> Array:
    return np.array([i for i in range(mask.bit_length()) if mask >> i & 1])


def _memory_numbers(mask: int) -> Array:
    return np.array(
        [m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & (1 << PER_MEMORY) - 1]
    )


RANDOM_ORDERS = 20
MAX_RANDOM_ORDERS = 100
"""Random orders of packing besides the usual ones: always, and where none of those fits."""


@dataclass(frozen=True)
class Lifetime:
    """Bit m of `memories` for each data memory; the first and the last layer of a value's life."""

    memories: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are in the same memory at the same time."""
        return bool(self.memories & other.memories) and self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryRegion:
    """Values that share an offset.  lead, size: bytes before and after the offset in each memory.

    lives: of its values.

    apart: bytes behind it that nothing may take while it lives.
    """

    lead: int
    size: int
    lives: tuple[Lifetime, ...]
    apart: int = 0


@dataclass(frozen=True)
class RegionPacking:
    """The offset of each buffer, and whether any lies partly over the input of the layer that writes it."""

    offsets: tuple[int, ...]
    overlapping: bool

    def count_touched(self, buffers: Sequence[MemoryRegion]) -> int:
        """Count the bytes of all data memories that any region takes."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for buffer, offset in zip(buffers, self.offsets, strict=True):
            memories = 0
            for life in buffer.lives:
                memories |= life.memories
            for memory in _list_bits(memories):
                spans.setdefault(memory, []).append((offset - buffer.lead, offset + buffer.size))
        return sum(_measure_union(sorted(ranges)) for ranges in spans.values())

    def highest(self, buffers: Sequence[MemoryRegion]) -> int:
        """Return the first byte that no region reaches in any data memory."""
        return max(offset + buffer.size for buffer, offset in zip(buffers, self.offsets, strict=True))


def _measure_union(spans: Sequence[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for first, last in spans:
        total += max(0, last - max(first, reached))
        reached = max(reached, last)
    return total


def _list_bits(mask: int) -> Iterator[int]:
    return (i for i in range(mask.bit_length()) if mask >> i & 1)


def find_overlap_distance(layer: Layer, step_in: int, step_out: int) -> int:
    """Return how many bytes before its input a layer's output must begin at least to lie over it.

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
    # A later position may need an earlier element than the position before it.
    needed = np.minimum.accumulate(needed[::-1])[::-1]
    return WORD_BYTES * int((step_out * np.arange(1, needed.size + 1) - step_in * needed).max())


@dataclass(frozen=True)
class AllowedOverlap:
    """Input and output of a layer: the output may begin `distance` bytes before the input, or earlier."""

    layer: int
    distance: int


class RegionPacker:
    """Packs buffers into memories of `capacity` bytes.

    over: by the numbers of an input and an output buffer.
    """

    def __init__(
        self,
        buffers: Sequence[MemoryRegion],
        capacity: int,
        overlaps: Mapping[tuple[int, int], AllowedOverlap],
    ) -> None:
        self.buffers = buffers
        self.capacity = capacity
        self.overlaps = overlaps
        count = range(len(buffers))
        self.forbidden: list[dict[int, tuple[int, int]]] = []
        for i in count:
            spans = {j: self._find_forbidden(i, j) for j in count if i != j}
            self.forbidden.append({j: span for j, span in spans.items() if span})

    def pack(self) -> RegionPacking | None:
        """Return the packing that takes the least memory among several; None where none fits."""
        offset_lists: list[tuple[int, ...]] = []
        for number, order in enumerate(self._orders()):
            # Where a usual order fits, a few random ones may save memory; where none does, more are tried.
            if offset_lists and number > RANDOM_ORDERS:
                break
            if offsets := self._first_fit(order):
                offset_lists.append(offsets)
        if not offset_lists:
            return None
        packings = [RegionPacking(offsets, self._overlapping(offsets)) for offsets in offset_lists]
        return min(packings, key=lambda p: (p.count_touched(self.buffers), p.highest(self.buffers)))

    def _find_forbidden(self, i: int, j: int) -> tuple[int, int] | None:
        """Return where region i may not begin, as bounds counted from the offset of j.

        The bounds themselves are allowed.
        """
        a, b = self.buffers[i], self.buffers[j]
        common = [(x, y) for x, y in product(a.lives, b.lives) if x.meets(y)]
        if not common:
            return None
        # Beside each other; where one may lie over the other, a smaller distance does.
        before, after = a.size + a.apart + b.lead, b.size + b.apart + a.lead
        if self._may_overlap(self.overlaps.get((j, i)), [(y, x) for x, y in common]):
            before = min(before, self.overlaps[j, i].distance)
        if self._may_overlap(self.overlaps.get((i, j)), common):
            after = min(after, self.overlaps[i, j].distance)
        return -before, after

    def _may_overlap(
        self, overlap: AllowedOverlap | None, common: Sequence[tuple[Lifetime, Lifetime]]
    ) -> bool:
        """Whether two regions only meet in the layer that reads the first last and begins the second."""
        if overlap is None:
            return False
        return all(read.last == overlap.layer == written.first for read, written in common)

    def _orders(self) -> Iterator[list[int]]:
        numbers, buffers = range(len(self.buffers)), self.buffers
        sizes = [b.lead + b.size for b in buffers]
        starts, lasts = (
            [min(x.first for x in b.lives) for b in buffers],
            [max(x.last for x in b.lives) for b in buffers],
        )
        # First fit works best where large and long-lived regions come first; no order wins always.
        yield sorted(numbers, key=lambda i: -sizes[i])
        yield sorted(numbers, key=lambda i: -sizes[i] * (lasts[i] - starts[i] + 1))
        yield sorted(numbers, key=lambda i: (-lasts[i], -sizes[i]))
        yield sorted(numbers, key=lambda i: (starts[i], -sizes[i]))
        yield sorted(numbers, key=lambda i: (starts[i] - lasts[i], -sizes[i]))
        # A fixed seed: the same network always gets the same places.
        generator = np.random.default_rng(0)
        for _ in range(MAX_RANDOM_ORDERS):
            yield generator.permutation(len(buffers)).tolist()

    def _first_fit(self, order: Sequence[int]) -> tuple[int, ...] | None:
        """Put each region at the lowest offset that those placed before it leave."""
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
            for i, j in self.overlaps
            if j in self.forbidden[i]
        )
