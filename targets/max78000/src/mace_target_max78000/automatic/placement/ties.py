"""Which values' slots follow from each other, and which values share an offset.

Grown tie by tie, each refused that contradicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mace_target_max78000.automatic.placement.values import Value
from mace_target_max78000.device import PER_MEMORY, PROCESSORS


@dataclass(frozen=True)
class Lane:
    """How a value lies among those that share its offset: which of `gap` interleaved words is its own.

    cluster: the number that these values have in common.
    """

    cluster: int
    gap: int = 1
    position: int = 0


class Ties:
    """values: by number.

    groups: for each value a group and its first slot counted from the group's.  lanes: for each value its
    own.
    """

    def __init__(self, values: dict[int, Value]) -> None:
        self.values = values
        self.groups: dict[int, tuple[int, int]] = {v: (v, 0) for v in values}
        self.lanes: dict[int, Lane] = {v: Lane(v) for v in values}

    def add(self, value: int, shape: Value) -> None:
        """A value that is tied to none."""
        self.values[value] = shape
        self.groups[value] = (value, 0)
        self.lanes[value] = Lane(value)

    def remove(self, value: int) -> None:
        """Forget the value added last; nothing may be tied to it alone."""
        for known in (self.values, self.groups, self.lanes):
            del known[value]

    def saved(self) -> tuple[dict[int, Value], dict[int, tuple[int, int]], dict[int, Lane]]:
        """What `restore` takes to forget everything that follows."""
        return dict(self.values), dict(self.groups), dict(self.lanes)

    def restore(self, saved: tuple[dict[int, Value], dict[int, tuple[int, int]], dict[int, Lane]]) -> None:
        """Forget everything since `saved`."""
        self.values, self.groups, self.lanes = saved

    def tie(self, first: int, second: int, shift: int) -> bool:
        """Let the second value begin `shift` slots after the first.

        False, and nothing done, where that cannot be.
        """
        (group, at), (other, at_other) = self.groups[first], self.groups[second]
        move = at + shift - at_other
        if group == other:
            return move == 0
        spans = [
            self._span(v, move if g == other else 0)
            for v, (g, _) in self.groups.items()
            if g in (group, other)
        ]
        if max(last for _, last in spans) - min(start for start, _ in spans) > PROCESSORS:
            return False
        for value, (g, slot) in self.groups.items():
            if g == other:
                self.groups[value] = (group, slot + move)
        return True

    def _span(self, value: int, move: int) -> tuple[int, int]:
        first = self.groups[value][1] + move
        return first, first + self.values[value].memories * PER_MEMORY

    def share(self, first: int, second: int, shift: int) -> bool:
        """Tie two values whose lanes have the same gap and let them share an offset.

        False, and nothing done, where they collide.
        """
        lane, other = self.lanes[first], self.lanes[second]
        if lane.cluster == other.cluster:
            return self.tie(first, second, shift)
        saved = dict(self.groups)
        if (
            lane.gap != other.gap
            or not self.tie(first, second, shift)
            or self._collide(lane.cluster, other.cluster)
        ):
            self.groups = saved
            return False
        for value in list(self.members(other.cluster)):
            self.lanes[value] = Lane(lane.cluster, lane.gap, self.lanes[value].position)
        return True

    def members(self, cluster: int) -> Iterator[int]:
        """The values of a cluster."""
        return (v for v, lane in self.lanes.items() if lane.cluster == cluster)

    def _collide(self, cluster: int, other: int) -> bool:
        taken = {cell for v in self.members(cluster) for cell in self._cells(v)}
        return any(cell in taken for v in self.members(other) for cell in self._cells(v))

    def _cells(self, value: int) -> Iterator[tuple[int, int]]:
        first, last = self._span(value, 0)
        return (
            (memory, self.lanes[value].position) for memory in range(first // PER_MEMORY, last // PER_MEMORY)
        )


def clusters(lanes: Mapping[int, Lane]) -> dict[int, list[int]]:
    """The values of each cluster."""
    found: dict[int, list[int]] = {}
    for value, lane in lanes.items():
        found.setdefault(lane.cluster, []).append(value)
    return found
