"""Which processors work: the first slot of every group of values whose slots follow from each other.

A value's slots are the processors of its readers, and decide whose weight memory and which data memories are
in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS


@dataclass(frozen=True)
class Demand:
    """What a part of a group takes, wherever the group begins.

    pattern: bit i for slot i of the group.  words: of weight memory in each of these processors.
    size: bytes of data memory, from layer `first` to layer `last`.
    """

    pattern: int
    words: int = 0
    size: int = 0
    first: int = 0
    last: int = 0


class Aim(Enum):
    """What is kept small when processors are chosen."""

    TOUCHED = "bytes of data memory that are ever in use"
    DATA = "the fullest data memory"
    BOTH = "the fullest memory of weights or data"
    WEIGHTS = "the fullest weight memory"


@dataclass(frozen=True)
class Capacity:
    """Quadrants that may be used, words of a processor's weight memory, bytes of a data memory, layers."""

    quadrants: int
    words: int
    size: int
    layers: int


@dataclass(frozen=True)
class Fixed:
    """What is known of groups before.  first: the group that begins at slot 0.

    parked: groups that no layer reads.

    Quadrants work only where layers read; parked groups are to lie in those.
    """

    first: int | None
    parked: frozenset[int]


def slots(
    groups: Mapping[int, Sequence[Demand]], fixed: Fixed, capacity: Capacity, aim: Aim
) -> dict[int, int]:
    """The first slot of each group, large groups first, each where the fullest memory stays emptiest.

    None of the groups has more slots than the quadrants have.
    """
    load = _Load(capacity, aim)
    found: dict[int, int] = {}
    working = 0
    for group in sorted(groups, key=lambda g: (g != fixed.first, g in fixed.parked, -load.weight(groups[g]))):
        pattern = _pattern(groups[group])
        last = 0 if group == fixed.first else capacity.quadrants * PER_QUADRANT - pattern.bit_length()
        starts: Sequence[int] = range(0, last + 1, PER_MEMORY)
        if group in fixed.parked:
            starts = [start for start in starts if not _quadrants(pattern << start) & ~working] or starts
        start = min(starts, key=lambda start: (load.cost(groups[group], start), start))
        load.add(groups[group], start)
        working |= _quadrants(pattern << start)
        found[group] = start
    return found


def _pattern(demands: Sequence[Demand]) -> int:
    mask = 0
    for demand in demands:
        mask |= demand.pattern
    return mask


def _quadrants(mask: int) -> int:
    """A bit for each quadrant that slots lie in."""
    return sum(1 << q for q in range(QUADRANTS) if mask >> q * PER_QUADRANT & 0xFFFF)


class _Load:
    """How full memories are, as parts of what they hold: weights by processor, data by layer and data memory."""

    def __init__(self, capacity: Capacity, aim: Aim) -> None:
        self.capacity, self.aim = capacity, aim
        self.words = np.zeros(PROCESSORS)
        self.data = np.zeros((capacity.layers + 1, PROCESSORS // PER_MEMORY))

    def weight(self, demands: Sequence[Demand]) -> float:
        """How much a group takes of all memories."""
        words = sum(d.words * d.pattern.bit_count() for d in demands) / self.capacity.words
        data = (
            sum(d.size * _memories(d.pattern).size * (d.last - d.first + 1) for d in demands)
            / self.capacity.size
        )
        return {Aim.WEIGHTS: words, Aim.BOTH: words + data}.get(self.aim, data)

    def cost(self, demands: Sequence[Demand], start: int) -> tuple[float, ...]:
        """What a group would cost if it began at a slot; the less the better, the first number first."""
        words, data = self.with_group(demands, start)
        mask = _pattern(demands) << start
        own = words[_bits(mask)]
        peaks = data.max(axis=0)
        fullest = float(peaks[_memories(mask)].max())
        heaviest = float(own.max())
        if self.aim is Aim.TOUCHED:
            return max(fullest, 1.0), float(peaks.sum()), heaviest, float(own.sum())
        worst = {Aim.DATA: fullest, Aim.WEIGHTS: heaviest}.get(self.aim, max(fullest, heaviest))
        return worst, float(own.sum())

    def with_group(self, demands: Sequence[Demand], start: int) -> tuple[Array, Array]:
        """Weights and data if a group began at a slot."""
        words, data = self.words.copy(), self.data.copy()
        for demand in demands:
            words[_bits(demand.pattern << start)] += demand.words / self.capacity.words
            data[demand.first : demand.last + 1, _memories(demand.pattern << start)] += (
                demand.size / self.capacity.size
            )
        return words, data

    def add(self, demands: Sequence[Demand], start: int) -> None:
        """Let a group begin at a slot."""
        self.words, self.data = self.with_group(demands, start)


def _bits(mask: int) -> Array:
    return np.array([i for i in range(mask.bit_length()) if mask >> i & 1])


def _memories(mask: int) -> Array:
    return np.array([m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF])
