"""Which processors work: the first slot of every group of values whose slots follow from each other.

A value's slots are the processors of its readers, and decide whose weight memory and which data memories are in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS


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


@dataclass(frozen=True)
class Emphasis:
    """What weighs when processors are chosen: the share of weight memory, of data memory."""

    weights: float
    data: float


@dataclass(frozen=True)
class Capacity:
    """Quadrants that may be used, words of a processor's weight memory, bytes of a data memory, layers."""

    quadrants: int
    words: int
    size: int
    layers: int


def slots(groups: Mapping[int, Sequence[Demand]], fixed: int | None, capacity: Capacity, emphasis: Emphasis) -> dict[int, int]:
    """The first slot of each group, large groups first, each where the fullest memory stays emptiest; of the group `fixed`, 0.

    None of the groups has more slots than the quadrants have.
    """
    load = _Load(capacity, emphasis)
    found: dict[int, int] = {}
    for group in sorted(groups, key=lambda g: (g != fixed, -load.weight(groups[g]))):
        extent = max(d.pattern.bit_length() for d in groups[group])
        starts = range(0, 1 if group == fixed else capacity.quadrants * PER_QUADRANT - extent + 1, PER_MEMORY)
        found[group] = min(starts, key=lambda start: (load.cost(groups[group], start), start))
        load.add(groups[group], found[group])
    return found


class _Load:
    """How full memories are: words of weights by processor, bytes of data by layer and data memory."""

    def __init__(self, capacity: Capacity, emphasis: Emphasis) -> None:
        self.capacity, self.emphasis = capacity, emphasis
        self.words = np.zeros(PROCESSORS)
        self.size = np.zeros((capacity.layers + 1, PROCESSORS // PER_MEMORY))

    def weight(self, demands: Sequence[Demand]) -> float:
        """How much a group takes of all memories."""
        words = sum(d.words * d.pattern.bit_count() for d in demands) / self.capacity.words * self.emphasis.weights
        size = sum(d.size * _memories(d.pattern).size * (d.last - d.first + 1) for d in demands)
        return words + size / self.capacity.size * self.emphasis.data

    def cost(self, demands: Sequence[Demand], start: int) -> tuple[float, float]:
        """The fullest memory that a group would make, and the sum over the group's."""
        worst, total = 0.0, 0.0
        for demand in demands:
            words = (self.words[_bits(demand.pattern << start)] + demand.words) / self.capacity.words * self.emphasis.weights
            lives = self.size[demand.first : demand.last + 1, _memories(demand.pattern << start)] + demand.size
            size = lives.max() / self.capacity.size * self.emphasis.data
            worst = max(worst, float(words.max()) if demand.words else 0.0, float(size))
            total += float(words.sum()) if demand.words else 0.0
        return round(worst, 6), round(total, 6)

    def add(self, demands: Sequence[Demand], start: int) -> None:
        """Let a group begin at a slot."""
        for demand in demands:
            self.words[_bits(demand.pattern << start)] += demand.words
            self.size[demand.first : demand.last + 1, _memories(demand.pattern << start)] += demand.size


def _bits(mask: int) -> Array:
    return np.array([i for i in range(mask.bit_length()) if mask >> i & 1])


def _memories(mask: int) -> Array:
    return np.array([m for m in range(PROCESSORS // PER_MEMORY) if mask >> m * PER_MEMORY & 0xF])
