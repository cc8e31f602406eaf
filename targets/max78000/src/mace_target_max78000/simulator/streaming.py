"""Layers that run at the same time, each reading what the one before it writes into a buffer that begins anew when it is full.

The answer is computed from whole layers, one after another, over an unrolled copy of the buffer; what the
registers make of the buffer is written to data memory afterwards, and conditions that every working program
fulfils are checked.  Which of two layers waits for the other, and when, is not modelled: the words to wait
for after each column and row change time, not results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_target_max78000.device import Device
from mace_target_max78000.simulator.memory import Array
from mace_target_max78000.simulator.setting import Setting
from mace_target_max78000.simulator.waiting import minimum
from mace_target_max78000.simulator.writer import Places


@dataclass(frozen=True)
class Flow:
    """A buffer's whole history.

    data: uint8 [memories, bytes] as if the buffer never ended.  memories, first, end: the words in use.
    """

    data: Array
    memories: frozenset[int]
    first: int
    end: int


def flow_of(places: Places, positions: int, device: Device) -> Flow:
    """An empty history for results at these places."""
    first, end = int(places.word.min()), int(places.word.max()) + (positions - 1) * places.pixel + 1
    data = np.zeros((16, max(device.data_bytes, 4 * end)), np.uint8)
    return Flow(data, frozenset(places.memory.tolist()), first, end)


class Group:
    """Consecutive streaming layers.

    passes, row_words: of the layers so far.  buffers: memory, first word and end of each so far.
    """

    def __init__(self, device: Device) -> None:
        self.passes = 0
        self.row_words = 0
        self.buffers: list[tuple[int, int, int]] = []
        self._device = device
        self._before: Setting | None = None

    def join(self, setting: Setting) -> None:
        """Add a layer; SimulationError where it does not fit the ones before it."""
        passes, (last, first) = setting.reading.passes, setting.row_memory
        if setting.stream.passes != self.passes:
            raise setting.fault(
                "STREAM2", f"{setting.stream.passes} passes of earlier layers, there are {self.passes}"
            )
        if self.passes and first != self.row_words:
            raise setting.fault("TPTR", f"row memory from word {first}, earlier layers take {self.row_words}")
        self.passes += setting.stream.own_passes
        self.row_words += (last - first + 1) * passes

    def leave(self, setting: Setting) -> None:
        """The layer has run; the next one reads from it."""
        self._before = setting

    def check(self, setting: Setting, available: int) -> None:
        """Raise SimulationError if the layer begins too early, never, waits too little, or has a buffer that is too small.

        available: words in all.
        """
        reading, stream = setting.reading, setting.stream
        unit = 4 if reading.planar else reading.passes * reading.operands
        least = minimum(setting, self._before, self._device)
        if stream.start < least.start:
            raise setting.fault(
                "STREAM1",
                f"it begins after {stream.start} words, its first window is there after {least.start}",
            )
        border = 2 * max(reading.pad) + 2
        most = (available // (1 if reading.planar else unit) + border * (available + border)) * reading.size[
            0
        ]
        if stream.start > most:
            raise setting.fault("STREAM1", f"it begins after {stream.start} words, which never come")
        if stream.columns < least.columns or stream.rows < least.rows:
            problem = f"it waits for {stream.columns} words at a column and {stream.rows} at the end of a row"
            raise setting.fault("STREAM2", f"{problem}, its windows need {least.columns} and {least.rows}")
        if stream.rollover and not reading.planar and stream.rollover <= stream.start:
            problem = (
                f"the buffer begins anew after {stream.rollover} words, {stream.start} must be there at once"
            )
            raise setting.fault("FMAX", problem)

    def roll(self, setting: Setting, flow: Flow, memory: Array) -> None:
        """Leave in data memory what a buffer holds at the end."""
        rollover = setting.stream.rollover or flow.end - flow.first
        words = memory.view("<u4")
        index = np.arange(max(0, flow.end - flow.first - rollover), flow.end - flow.first)
        length = min(rollover, flow.end - flow.first)
        if flow.first + length > words.shape[1]:
            raise setting.fault(
                "FMAX", f"the buffer ends at word {flow.first + length}, data memories at {words.shape[1]}"
            )
        for m in flow.memories:
            self.claim(setting, m, flow.first, flow.first + length)
            words[m, flow.first + index % rollover] = flow.data.view("<u4")[m, flow.first + index]

    def claim(self, setting: Setting, memory: int, first: int, end: int) -> None:
        """Words that are in use while the group runs; SimulationError if two layers use the same."""
        for m, other, last in self.buffers:
            if m == memory and first < last and other < end:
                raise setting.fault(
                    "FMAX",
                    f"words {first} to {end} of memory {m} are written while others use {other} to {last} of it",
                )
        self.buffers.append((memory, first, end))


def expected(setting: Setting, flow: Flow) -> None:
    """Raise SimulationError if a streaming layer reads elsewhere than its predecessor writes."""
    memories = {p // 4 for p in setting.processors}
    if not memories <= flow.memories or setting.reading.base != flow.first:
        ours, theirs = sorted(memories), sorted(flow.memories)
        problem = f"memories {ours} are read from word {setting.reading.base} on, the layer before writes {theirs} from {flow.first} on"
        raise setting.fault("RPTR_BASE", problem)
