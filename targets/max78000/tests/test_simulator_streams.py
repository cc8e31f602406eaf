"""When layers of a stream may begin, how long they wait, and which words their buffers hold, setting by setting."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.simulate import SimulationError
from mace_target_max78000.simulate.layer_settings import (
    KernelSettings,
    LayerKind,
    LayerSettings,
    Reading,
    StreamSettings,
    Writing,
)
from mace_target_max78000.simulate.streaming import Flow, Group, check_flow, find_minimum_wait
from mace_target_max78002.device import MAX78002

WIDTH = 12


def reading(
    size: tuple[int, int] = (1, 1), step: int = 1, *, pad: int = 1, operands: int = 1, planar: bool = False,
    passes: int = 1, dilation: int = 1,
) -> Reading:  # fmt: skip
    """Windows over rows of 12 positions."""
    unit = passes * operands
    return Reading(
        0x100, 8 // step, WIDTH // step, size, step * WIDTH * unit, step * unit, dilation * WIDTH * unit,
        dilation * unit, passes, operands, (pad, pad), False, None, False, planar, False, False,
    )  # fmt: skip


def layer(read: Reading, start: int = 1, passes: int = 0, rollover: int = 0, wait: int = 99) -> LayerSettings:
    stream = StreamSettings(start, passes, rollover, wait, wait, read.passes)
    return LayerSettings(
        1, LayerKind.CONVOLUTION, read, KernelSettings(3, 3, 0, 4, 8, False, False),
        Writing({0: 0x800}, 0, 0x800, 0, 1, 4, False, False), stream, (0, 1, 4), frozenset(), {}, 0, 0,
        False, False, (WIDTH - 1, 0), 2,
    )  # fmt: skip


WINDOWS = (((1, 1), 1), ((2, 2), 2), ((3, 2), 1), ((1, 3), 3), ((4, 1), 3), ((1, 1), 5))
"""Rows and columns of windows, and their steps."""
OTHERS = (
    (1, 1, False, 1),
    (0, 1, False, 1),
    (1, 2, False, 2),
    (1, 1, True, 1),
    (2, 1, False, 2),
    (0, 3, True, 1),
)
"""Padding, operands, whether channels lie in planes, and dilation."""


def list_waits(device: Chip, behind: bool) -> list[str]:
    """The waits of each window, a line for each of the other settings."""
    before = layer(reading(pad=2)) if behind else None
    lines = []
    for pad, operands, planar, dilation in OTHERS:
        waits = []
        for size, step in WINDOWS:
            read = reading(size, step, pad=pad, operands=operands, planar=planar, dilation=dilation)
            waits.append("/".join(map(str, find_minimum_wait(layer(read), before, device))))
        lines.append(" ".join(waits))
    return lines


# As words before the first window / at each column / at the end of each row.
EXPECTED: dict[tuple[str, bool], list[str]] = {
    ("MAX78000", False): [
        "1/0/0 28/1/12 78/0/24 3/2/0 148/2/36 1/4/0",
        "1/0/0 28/1/12 78/0/24 3/2/0 148/2/36 1/4/0",
        "1/0/0 28/2/24 78/0/48 3/4/0 148/4/72 1/8/0",
        "1/0/0 28/1/12 78/0/24 3/2/0 148/2/36 1/4/0",
        "1/0/0 28/1/12 78/0/24 3/2/0 148/2/36 1/4/0",
        "1/0/0 28/3/36 78/0/72 3/6/0 148/6/108 1/12/0",
    ],
    ("MAX78000", True): [
        "35/1/1 52/2/18 68/1/2 37/3/35 83/3/33 35/5/65",
        "35/1/1 52/2/18 68/1/2 37/3/35 83/3/33 35/5/65",
        "35/2/2 52/4/20 68/2/4 37/6/38 83/6/34 35/10/66",
        "35/1/1 52/2/18 68/1/2 37/3/35 83/3/33 35/5/65",
        "35/1/1 52/2/18 68/1/2 37/3/35 83/3/33 35/5/65",
        "35/3/3 52/6/22 68/3/6 37/9/41 83/9/35 35/15/67",
    ],
    ("MAX78002", False): [
        "1/0/0 33/2/15 47/1/2 49/3/29 63/3/24 81/5/50",
        "1/0/0 28/2/15 40/1/2 42/3/29 54/3/24 70/5/50",
        "2/1/1 130/4/15 186/2/3 110/6/29 238/6/24 162/10/50",
        "1/0/0 9/1/4 12/1/1 13/1/8 16/1/6 21/2/13",
        "2/0/0 74/2/15 106/1/2 62/3/29 136/3/24 92/5/50",
        "1/1/1 21/2/4 30/1/1 32/3/8 41/3/6 53/4/13",
    ],
    ("MAX78002", True): [
        "31/1/1 47/2/14 61/1/1 63/3/27 77/3/27 95/5/50",
        "26/1/1 52/2/14 52/1/1 78/3/27 90/3/27 130/5/50",
        "80/2/2 144/4/12 200/2/2 124/6/24 252/6/27 176/10/50",
        "31/1/1 47/2/14 61/1/1 63/3/27 77/3/27 95/5/50",
        "70/1/1 106/2/12 138/1/1 94/3/24 168/3/27 124/5/50",
        "54/3/3 108/6/14 132/3/3 162/9/27 198/9/27 270/15/50",
    ],
}


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda device: device.name)
def test_waits(device: Chip, behind: bool) -> None:
    assert list_waits(device, behind) == EXPECTED[device.name, behind]


def check(setting: LayerSettings, available: int = 96, behind: bool = False) -> None:
    group = Group(MAX78000)
    if behind:
        group.leave(layer(reading()))
    group.check(setting, available)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (layer(reading((2, 2), 2), 27), "it begins after 27 words, its first window is there after 28"),
        (layer(reading((2, 2), 2), 28), ""),
        (layer(reading((2, 2), 2), 992), ""),
        (layer(reading((2, 2), 2), 993), "it begins after 993 words, which never come"),
        (layer(reading((1, 1), pad=0), 292), ""),
        (layer(reading((1, 1), pad=0), 293), "which never come"),
        (layer(reading((1, 1), pad=0, planar=True), 292), ""),
        (layer(reading((1, 1), pad=0, planar=True), 293), "which never come"),
        (layer(reading((1, 1), pad=0, passes=2, operands=3), 212), ""),
        (layer(reading((1, 1), pad=0, passes=2, operands=3), 213), "which never come"),
        (
            layer(reading((2, 2), 2), 28, wait=0),
            "it waits for 0 words at a column and 0 at the end of a row, its windows need 1 and 12",
        ),
        (layer(reading((2, 2), 2), 28, wait=11), "its windows need 1 and 12"),
        (layer(reading((2, 2), 2), 28, wait=12), ""),
        (layer(reading((2, 2), 2), 28, rollover=28), "the buffer wraps after 28 words, 28 must be there"),
        (layer(reading((2, 2), 2), 28, rollover=29), ""),
        (layer(reading((2, 2), 2, planar=True), 28, rollover=5), ""),
    ],
)
def test_a_layer_begins_once_its_windows_are_there(setting: LayerSettings, message: str) -> None:
    if not message:
        check(setting)
        return
    with pytest.raises(SimulationError, match=re.escape(message)):
        check(setting)


def test_passes_and_rows_of_layers_add_up() -> None:
    group = Group(MAX78000)
    group.join(layer(reading(passes=2)))
    assert (group.passes, group.row_words) == (2, 2 * WIDTH)
    with pytest.raises(SimulationError, match="3 passes of earlier layers, expected 2"):
        group.join(layer(reading(), passes=3))
    with pytest.raises(SimulationError, match="row memory from word 5, earlier layers take 24"):
        group.join(replace(layer(reading(), passes=2), row_memory=(16, 5)))
    group.join(replace(layer(reading(passes=3), passes=2), row_memory=(2 * WIDTH + 6, 2 * WIDTH)))
    assert (group.passes, group.row_words) == (5, 2 * WIDTH + 21)


def test_buffers_of_a_group_do_not_overlap() -> None:
    group, setting = Group(MAX78000), layer(reading())
    group.claim(setting, 1, 10, 20)
    group.claim(setting, 2, 15, 25)
    group.claim(setting, 1, 20, 30)
    group.claim(setting, 1, 5, 10)
    for first, end in ((19, 21), (9, 11), (12, 13), (0, 40)):
        with pytest.raises(
            SimulationError, match=f"words {first} to {end} of memory 1 are written while others use"
        ):
            group.claim(setting, 1, first, end)


@pytest.mark.parametrize(
    ("rollover", "held"),
    [
        (0, [10, 11, 12, 13, 14, 15, 16]),
        (7, [10, 11, 12, 13, 14, 15, 16]),
        (9, [10, 11, 12, 13, 14, 15, 16]),
        (4, [14, 15, 16, 13]),
        (3, [16, 14, 15]),
    ],
)
def test_the_last_turn_of_a_buffer_stays_in_memory(rollover: int, held: list[int]) -> None:
    data, memory = (np.zeros((16, 80), np.uint8) for _ in range(2))
    data.view("<u4")[2, 5:12] = range(10, 17)
    group = Group(MAX78000)
    group.roll(layer(reading(), rollover=rollover), Flow(data, frozenset({2}), 5, 12), memory)
    words = memory.view("<u4")
    assert words[2, 5 : 5 + len(held)].tolist() == held
    assert (np.count_nonzero(words), group.buffers) == (len(held), [(2, 5, 5 + len(held))])


def test_a_buffer_ends_inside_its_memory() -> None:
    data = np.zeros((16, 80), np.uint8)
    flow, setting = Flow(data, frozenset({2}), 5, 12), layer(reading())
    Group(MAX78000).roll(setting, flow, np.zeros((16, 48), np.uint8))
    with pytest.raises(SimulationError, match="the buffer ends at word 12, data memories at 11"):
        Group(MAX78000).roll(setting, flow, np.zeros((16, 44), np.uint8))


@pytest.mark.parametrize(
    ("memories", "first", "message"),
    [
        ({0, 1}, 0x100, ""),
        ({0, 1, 2}, 0x100, ""),
        ({0}, 0x100, "memories [0, 1] are read from word 256 on, the layer before writes [0] from 256 on"),
        (
            {0, 1},
            0x101,
            "memories [0, 1] are read from word 256 on, the layer before writes [0, 1] from 257 on",
        ),
    ],
)
def test_a_layer_reads_what_the_one_before_writes(memories: set[int], first: int, message: str) -> None:
    flow = Flow(np.zeros((16, 4), np.uint8), frozenset(memories), first, first + 1)
    if not message:
        check_flow(layer(reading()), flow)
        return
    with pytest.raises(SimulationError, match=re.escape(message)):
        check_flow(layer(reading()), flow)
