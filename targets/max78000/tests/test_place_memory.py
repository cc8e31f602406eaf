"""Slots and offsets by themselves: masks, loads of memories, lifetimes, and packings that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mace_target_max78000.place import allocate
from mace_target_max78000.place.allocate import (
    AllowedOverlap,
    FixedGroups,
    GroupDemand,
    Lifetime,
    MemoryCapacity,
    MemoryRegion,
    RegionPacker,
    RegionPacking,
    SlotAim,
    choose_slots,
)

CAPACITY = MemoryCapacity(quadrants=4, words=100, size=1000, layers=3)
FREE = FixedGroups(None, frozenset())


@pytest.mark.parametrize("slot", range(64))
def test_slots_lie_in_memories_and_quadrants(slot: int) -> None:
    assert allocate._quadrants_of(1 << slot) == 1 << slot // 16
    assert allocate._memory_numbers(1 << slot).tolist() == [slot // 4]
    assert allocate._slot_numbers(1 << slot).tolist() == [slot]


def test_masks_of_several_slots() -> None:
    mask = 1 << 3 | 1 << 4 | 1 << 15 | 1 << 32 | 1 << 63
    assert allocate._quadrants_of(mask) == 0b1101
    assert allocate._memory_numbers(mask).tolist() == [0, 1, 3, 8, 15]
    assert allocate._slot_numbers(mask).tolist() == [3, 4, 15, 32, 63]


@pytest.mark.parametrize(
    ("aim", "weight", "cost"),
    [
        # Two slots of 30 words, and five of 10: (60 + 50) / 100. One memory of 200 bytes for two layers, and two of
        # 300 for one: (400 + 600) / 1000.
        (SlotAim.WEIGHTS, 1.1, (0.4, 1.5)),
        (SlotAim.DATA, 1.0, (0.5, 1.5)),
        (SlotAim.BOTH, 2.1, (0.5, 1.5)),
        (SlotAim.TOUCHED, 1.0, (1.0, 0.8, 0.4, 1.5)),
    ],
)
def test_what_a_group_takes(aim: SlotAim, weight: float, cost: tuple[float, ...]) -> None:
    demands = [
        GroupDemand(0b11, words=30, size=200, first=0, last=1),
        GroupDemand(0b11111, words=10, size=300, first=1, last=1),
    ]
    load = allocate._MemoryLoad(CAPACITY, aim)
    assert load.weight(demands) == pytest.approx(weight)
    assert load.cost(demands, 4) == pytest.approx((0.4, 1.1) if aim is SlotAim.WEIGHTS else (*cost[:-1], 1.1))
    load.add([GroupDemand(0b10000, words=20)], 4)
    load.add([GroupDemand(0b1, words=20)], 4)
    assert load.cost(demands, 4) == pytest.approx(
        {SlotAim.WEIGHTS: (0.6, 1.5), SlotAim.DATA: (0.5, 1.5), SlotAim.BOTH: (0.6, 1.5)}.get(
            aim, (1.0, 0.8, 0.6, 1.5)
        )
    )
    words, data = load.with_group(demands, 4)
    assert np.round(words[3:10], 6).tolist() == [0, 0.6, 0.4, 0.1, 0.1, 0.3, 0]
    assert np.round(data[:, :4], 6).tolist() == [[0, 0.2, 0, 0], [0, 0.5, 0.3, 0], [0] * 4, [0] * 4]


def test_groups_begin_where_memories_are_empty() -> None:
    narrow, wide = GroupDemand(0b1, words=10, size=10), GroupDemand((1 << 16) - 1, words=20, size=20)
    starts = choose_slots({0: [narrow], 1: [wide], 2: [narrow]}, FREE, CAPACITY, SlotAim.BOTH)
    assert starts == {0: 16, 1: 0, 2: 20}
    one = MemoryCapacity(quadrants=1, words=100, size=1000, layers=3)
    assert choose_slots({0: [narrow], 1: [wide], 2: [narrow]}, FREE, one, SlotAim.BOTH) == {0: 0, 1: 0, 2: 4}


def test_the_first_group_begins_at_slot_0_and_parked_ones_where_layers_read() -> None:
    narrow, wide = GroupDemand(0b1, words=10, size=10), GroupDemand((1 << 12) - 1, words=20, size=20)
    groups = {0: [wide], 1: [narrow], 2: [narrow]}
    for parked, start in (({2}, 0), ((), 16)):
        fixed = FixedGroups(1, frozenset(parked))
        assert choose_slots(groups, fixed, CAPACITY, SlotAim.BOTH) == {0: 4, 1: 0, 2: start}


@pytest.mark.parametrize(
    ("memories", "first", "last", "meets"),
    [
        (0b10, 3, 5, True),
        (0b110, 5, 9, True),
        (0b11, 0, 3, True),
        (0b11, 0, 2, False),
        (0b11, 6, 9, False),
        (0b100, 3, 5, False),
        (0b11, 4, 4, True),
        (0b11, 0, 9, True),
    ],
)
def test_lifetimes_meet_in_a_memory_at_a_time(memories: int, first: int, last: int, meets: bool) -> None:
    one, other = Lifetime(0b11, 3, 5), Lifetime(memories, first, last)
    assert one.meets(other) is other.meets(one) is meets


def region(
    size: int, first: int, last: int, *, memories: int = 1, lead: int = 0, apart: int = 0
) -> MemoryRegion:
    return MemoryRegion(lead, size, (Lifetime(memories, first, last),), apart)


def test_bytes_are_counted_once_in_each_memory() -> None:
    regions = [region(10, 0, 0, memories=0b101), region(20, 1, 1, memories=0b100, lead=4), region(5, 2, 2)]
    packing = RegionPacking((0, 8, 30), overlapping=False)
    # Memory 0: 0 to 10 and 30 to 35. Memory 2: 0 to 10 and 4 to 28.
    assert packing.count_touched(regions) == 15 + 28
    assert packing.highest(regions) == 35


@pytest.mark.parametrize(
    ("regions", "capacity", "offsets"),
    [
        ([region(10, 0, 1), region(6, 1, 2)], 16, (0, 10)),
        ([region(10, 0, 1), region(6, 1, 2)], 15, None),
        ([region(10, 0, 1), region(6, 2, 2)], 10, (0, 0)),
        ([region(10, 0, 1), region(6, 1, 2, memories=2)], 10, (0, 0)),
        ([region(10, 0, 1, apart=3), region(6, 1, 2)], 19, (6, 0)),
        ([region(10, 0, 1, apart=3), region(6, 1, 2)], 18, None),
        ([region(10, 0, 1), region(6, 1, 2, lead=2)], 18, (0, 12)),
        ([region(10, 0, 1), region(6, 1, 2, lead=2)], 17, None),
        ([region(10, 0, 1), region(6, 1, 2, apart=1)], 17, (0, 10)),
        ([region(10, 0, 1), region(6, 1, 2, apart=1)], 16, None),
        ([region(4, 0, 0), region(4, 0, 1), region(4, 1, 2)], 8, (0, 4, 0)),
    ],
)
def test_regions_that_live_at_once_lie_beside_each_other(
    regions: list[MemoryRegion], capacity: int, offsets: tuple[int, ...] | None
) -> None:
    packing = RegionPacker(regions, capacity, {}).pack()
    assert (packing.offsets if packing else None) == offsets


@pytest.mark.parametrize(
    ("layer", "distance", "offsets", "overlapping"),
    [(1, 4, (4, 0), True), (1, 6, (0, 10), False), (2, 4, (0, 10), False), (0, 4, (0, 10), False)],
)
def test_an_output_may_lie_over_its_input(
    layer: int, distance: int, offsets: tuple[int, int], overlapping: bool
) -> None:
    regions = [region(10, 0, 1), region(6, 1, 2)]
    packing = RegionPacker(regions, 99, {(0, 1): AllowedOverlap(layer, distance)}).pack()
    assert packing is not None
    assert (packing.offsets, packing.overlapping) == (offsets, overlapping)
