"""Follows streaming layers: what they wait for, and what they overwrite.

Streaming layers run at the same time. Each reads what the one before it writes into a buffer, which wraps
when it is full. Results are computed from complete layers, one after another, over an unrolled copy of the
buffer; what the registers make of the buffer is written to data memory afterwards, and conditions that hold
in every working program are checked. Which of two layers waits for the other, and when, is not modeled: the
words to wait for after each column and row change time, not results.

`find_minimum_wait` computes how long a layer must wait so that every window is there when it is read. What
the hardware does is not public in detail: these are the waits of the vendor's programs, computed from
registers alone. That they are needed, and not only usual, is an assumption: a program that waits less is
refused, a longer wait is accepted.

`find_overwritten` finds layers that write over their own input: what they read after a result has reached it
is the result. A layer reads positions row by row, keeps in its row memory what a kernel needs of earlier
ones, and writes a result as soon as the kernel's last position is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from mace_target_max78000.device import PER_MEMORY, Chip
from mace_target_max78000.simulate.data_paths import OutputPlaces
from mace_target_max78000.simulate.layer_settings import LayerKind, LayerSettings, Reading
from mace_target_max78000.simulate.memory import Array
from mace_target_max78000.wording import format_count


@dataclass(frozen=True)
class Flow:
    """A buffer's whole history.

    data: uint8 [memories, bytes] as if the buffer never ended.  memories, first, end: the words in use.
    """

    data: Array
    memories: frozenset[int]
    first: int
    end: int


def make_flow(places: OutputPlaces, positions: int, device: Chip) -> Flow:
    """Return an empty history for results at these places."""
    first, end = int(places.word.min()), int(places.word.max()) + (positions - 1) * places.pixel + 1
    data = np.zeros((16, max(device.data_bytes, 4 * end)), np.uint8)
    return Flow(data, frozenset(places.memory.tolist()), first, end)


class Group:
    """Consecutive streaming layers.

    passes, row_words: of the layers so far.  buffers: memory, first word and end of each so far.
    """

    def __init__(self, device: Chip) -> None:
        self.passes = 0
        self.row_words = 0
        self.buffers: list[tuple[int, int, int]] = []
        self._device = device
        self._before: LayerSettings | None = None

    def join(self, setting: LayerSettings) -> None:
        """Add a layer; SimulationError where it does not fit the ones before it."""
        passes, (last, first) = setting.reading.passes, setting.row_memory
        if setting.stream.passes != self.passes:
            raise setting.fault(
                "STREAM2",
                f"{format_count(setting.stream.passes, 'pass')} of earlier layers, expected {self.passes}",
            )
        if self.passes and first != self.row_words:
            raise setting.fault("TPTR", f"row memory from word {first}, earlier layers take {self.row_words}")
        self.passes += setting.stream.own_passes
        self.row_words += (last - first + 1) * passes

    def leave(self, setting: LayerSettings) -> None:
        """The layer has run; the next one reads from it."""
        self._before = setting

    def check(self, setting: LayerSettings, available: int) -> None:
        """Check when a layer begins, how long it waits, and how large its buffer is.

        Raise SimulationError if it begins too early or never, waits too little, or has too small a buffer.
        available: words in all.
        """
        reading, stream = setting.reading, setting.stream
        unit = 4 if reading.planar else reading.passes * reading.operands
        minimum = find_minimum_wait(setting, self._before, self._device)
        if stream.start < minimum.start:
            raise setting.fault(
                "STREAM1",
                f"it begins after {stream.start} words, its first window is there after {minimum.start}",
            )
        # A generous bound: all passes over the padded frame, once for each row of a window.
        border = 2 * max(reading.pad) + 2
        maximum = (
            available // (1 if reading.planar else unit) + border * (available + border)
        ) * reading.size[0]
        if stream.start > maximum:
            raise setting.fault("STREAM1", f"it begins after {stream.start} words, which never come")
        if stream.columns < minimum.columns or stream.rows < minimum.rows:
            problem = f"it waits for {stream.columns} words at a column and {stream.rows} at the end of a row"
            raise setting.fault(
                "STREAM2", f"{problem}, its windows need {minimum.columns} and {minimum.rows}"
            )
        if stream.rollover and not reading.planar and stream.rollover <= stream.start:
            problem = f"the buffer wraps after {stream.rollover} words, {stream.start} must be there at once"
            raise setting.fault("FMAX", problem)

    def roll(self, setting: LayerSettings, flow: Flow, memory: Array) -> None:
        """Leave in data memory what a buffer holds at the end."""
        rollover = setting.stream.rollover or flow.end - flow.first
        words = memory.view("<u4")
        # Only the last turn of the buffer is left in memory when the group has run.
        index = np.arange(max(0, flow.end - flow.first - rollover), flow.end - flow.first)
        length = min(rollover, flow.end - flow.first)
        if flow.first + length > words.shape[1]:
            raise setting.fault(
                "FMAX", f"the buffer ends at word {flow.first + length}, data memories at {words.shape[1]}"
            )
        for m in flow.memories:
            self.claim(setting, m, flow.first, flow.first + length)
            words[m, flow.first + index % rollover] = flow.data.view("<u4")[m, flow.first + index]

    def claim(self, setting: LayerSettings, memory: int, first: int, end: int) -> None:
        """Reserve words while the group runs; SimulationError if two layers use the same."""
        for m, other, last in self.buffers:
            if m == memory and first < last and other < end:
                problem = f"words {first} to {end} of memory {m} are written"
                raise setting.fault("FMAX", f"{problem} while others use {other} to {last} of it")
        self.buffers.append((memory, first, end))


def check_flow(setting: LayerSettings, flow: Flow) -> None:
    """Raise SimulationError if a streaming layer reads elsewhere than its predecessor writes."""
    memories = {p // 4 for p in setting.processors}
    if not memories <= flow.memories or setting.reading.base != flow.first:
        ours, theirs = sorted(memories), sorted(flow.memories)
        reads = f"memories {ours} are read from word {setting.reading.base} on"
        writes = f"the layer before writes {theirs} from {flow.first} on"
        raise setting.fault("RPTR_BASE", f"{reads}, {writes}")


class Wait(NamedTuple):
    """Words before the first window, at each column, and at the end of each row."""

    start: int
    columns: int
    rows: int


class _Window(NamedTuple):
    """A layer's windows: rows, columns, step, and the columns of a row of its input."""

    rows: int
    columns: int
    step: int
    width: int


def find_minimum_wait(setting: LayerSettings, before: LayerSettings | None, device: Chip) -> Wait:
    """Return what a layer must wait for.  before: the streaming layer that it reads from.

    None for the first one.
    """
    # These formulas are those of the encoder, derived a second time from registers: a simulator that
    # shared them could not find a wrong one.
    if device.generation == 2:
        return _second_generation(setting, before)
    return _first_layer(setting) if before is None else _wait_behind(setting, before)


def _window(reading: Reading) -> _Window:
    unit = reading.passes * reading.operands
    step = reading.column_step // unit
    return _Window(*reading.size, step, reading.row_step // (step * unit))


def _first_layer(setting: LayerSettings) -> Wait:
    """Return the wait of the first generation's first layer.

    It counts positions, even where a word holds four of them, and each row of a window once more.
    """
    window = _window(setting.reading)
    rows = (window.rows - 1) * window.width
    start = (rows + window.columns) * window.rows
    return Wait(start, (window.step - 1) * setting.reading.operands, rows * setting.reading.operands)


def _wait_behind(setting: LayerSettings, before: LayerSettings) -> Wait:
    """Return the wait of a later layer: the first generation counts the padded positions of the layer before.

    That layer is done with a row when its kernel's last row is there.
    """
    window, operands = _window(setting.reading), setting.reading.operands
    width = before.reading.columns + 2 * before.reading.pad[1]
    start = width * (before.kernel.rows + window.rows - 2) + before.kernel.columns + window.columns - 1
    return Wait(start, window.step * operands, (window.step - 1) * width + window.columns * operands)


def _second_generation(setting: LayerSettings, before: LayerSettings | None) -> Wait:
    """Return the wait in the second generation, which counts rows with their padding.

    A layer that reads ahead waits longer, which is not asked for here.
    """
    reading, window = setting.reading, _window(setting.reading)
    unit = reading.passes * reading.operands
    span = max(window.columns * (reading.inner_column // unit), window.step)
    down = max(window.rows * (reading.inner_row // (unit * window.width)), window.step)
    pad, columns = reading.pad[1], window.step * reading.operands
    padded = window.width + 2 * pad
    first = (down * padded + pad + 2 * span) * reading.operands
    if before is None:
        single = window.step == 1 and window.rows == 1
        columns = _words(columns - single, reading)
        rest = _left_out(window, window.width // window.step, 1)
        rows = (
            columns + rest
            if window.step == 1
            else (window.step - 1) * window.width + rest + window.columns - 1
        )
        return Wait(_words(span if single else first, reading), columns, _words(rows, reading))
    steps = window.width // span
    steps -= steps * window.step + window.columns > window.width
    rest = 0 if span == 1 else window.width - steps * span
    start = (pad or window.step) * padded + first
    return Wait(
        start, columns, columns + rest if window.step == 1 else (window.step - 1) * window.width + rest
    )


def _left_out(window: _Window, steps: int, overlap: int) -> int:
    """Return columns at the end of a row where no window begins."""
    steps -= steps * window.step + window.columns - overlap > window.width
    return max(0, window.width - steps * window.step)


def _words(positions: int, reading: Reading) -> int:
    """Return words that hold so many positions."""
    return -(-positions // 4) if reading.planar else positions


def find_overwritten(
    setting: LayerSettings, places: OutputPlaces, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Memories and words of input that is read after a result was written there.

    shape: rows and columns of the output.
    """
    reading = {p // PER_MEMORY for p in setting.processors}
    # Memory and word as one number, so that each word is looked at once.
    keys = np.unique(places.memory.astype(np.int64) << 32 | places.word)
    memories, first = keys >> 32, keys & 0xFFFFFFFF
    shared = np.isin(memories, list(reading))
    words = first[shared][:, None] + np.arange(shape[0] * shape[1]) * places.pixel
    index, times = _read(setting)
    if not shared.any() or index.max() < words.min() or index.min() > words.max():
        return memories[:0], first[:0]
    last = np.full(int(max(index.max(), words.max())) + 1, -1)
    np.maximum.at(last, index, times)
    early = last[words] > _last_positions_read(setting, shape)
    return np.broadcast_to(memories[shared][:, None], words.shape)[early], words[early]


def _read(setting: LayerSettings) -> tuple[Array, Array]:
    """Return numbers of all words that are read, and the position, in order, that each is read for."""
    reading = setting.reading
    positions = np.arange(reading.rows * reading.columns)
    rows, columns = np.divmod(positions, reading.columns)
    inside = product(range(reading.size[0]), range(reading.size[1]))
    inner = [r * reading.inner_row + c * reading.inner_column for r, c in inside]
    words = np.arange(1 if reading.planar else reading.passes * reading.operands)
    index = (
        (rows * reading.row_step + columns * reading.column_step)[:, None, None]
        + np.array(inner)[:, None]
        + words
    )
    return reading.base + (index // 4 if reading.planar else index), np.broadcast_to(
        positions[:, None, None], index.shape
    )


def _last_positions_read(setting: LayerSettings, shape: tuple[int, int]) -> Array:
    """Return the position that was read last when each result is written, in the order of results."""
    reading, kernel = setting.reading, setting.kernel
    if setting.kind is LayerKind.PASSTHROUGH:
        return np.arange(shape[0] * shape[1])
    scale = 2 if reading.transposed else 1
    rows = np.clip((np.arange(shape[0]) + kernel.rows - 1 - reading.pad[0]) // scale, 0, reading.rows - 1)
    columns = np.clip(
        (np.arange(shape[1]) + kernel.columns - 1 - reading.pad[1]) // scale, 0, reading.columns - 1
    )
    return np.asarray(rows[:, None] * reading.columns + columns).ravel()
