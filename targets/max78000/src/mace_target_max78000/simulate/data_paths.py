"""Moves data between memories and the convolver.

`read_input` gathers, pools and combines what is then multiplied. `finish_sums` shifts and activates,
`find_places` computes the addresses of all results. `Fifos` take input while the accelerator runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, QUADRANTS, Chip
from mace_target_max78000.simulate.layer_settings import LayerKind, LayerSettings, Reading
from mace_target_max78000.simulate.memory import Array, SimulationError, whole_words

SUBTRACT, ADD, OR = 0, 1, 2
"""Codes of element-wise operations; 3 is the exclusive or."""


@dataclass(frozen=True)
class Averaging:
    """How averages become integers.

    rounding: to the nearest.  documented: down, halves up; else towards zero, halves away from it, and no
    rounding along one axis.
    """

    rounding: bool
    documented: bool

    def divide(self, total: Array, count: int, one_dimensional: bool) -> Array:
        """Return sums of `count` values as averages."""
        # The vendor's document rounds down; its tool, whose known answers this reproduces, rounds towards
        # zero and ignores the option for rounding along one axis.
        if self.documented:
            return (total + (count // 2 if self.rounding else 0)) // count
        half = count // 2 if self.rounding and not one_dimensional else 0
        return np.asarray(np.sign(total) * ((np.abs(total) + half) // count))


def read_input(setting: LayerSettings, data: Array, averaging: Averaging) -> Array:
    """Return what each processor reads, pooled and combined: int32 [processors, passes, rows, columns].

    data: uint8 [memories, bytes].
    Raises SimulationError where a position lies beyond the memory.
    """
    reading = setting.reading
    rows, columns = reading.size
    positions = product(range(rows), range(columns))
    windows = (_gather(setting, data, r * reading.inner_row + c * reading.inner_column) for r, c in positions)
    first = reading.eltwise is not None and not reading.pool_first
    pooled: Array | None = None
    for window in windows:
        values = _combine(reading, window) if first else window
        if pooled is None:
            pooled = values.astype(np.int32)
        elif reading.average:
            pooled += values
        else:
            np.maximum(pooled, values, out=pooled)
    assert pooled is not None
    if reading.average:
        pooled = averaging.divide(pooled, rows * columns, setting.kernel.one_dimensional)
    return (pooled if first else _combine(reading, pooled)).transpose(0, 3, 1, 2)


def _gather(setting: LayerSettings, data: Array, inner: int) -> Array:
    """Return one position of every window: int8 [processors, rows, columns, passes, operands]."""
    reading, processors = setting.reading, np.array(setting.processors)
    memories, where = np.unique(processors // PER_MEMORY, return_inverse=True)
    words = 1 if reading.planar else reading.passes * reading.operands
    rows = np.arange(reading.rows) * reading.row_step
    columns = np.arange(reading.columns) * reading.column_step
    index = rows[:, None, None] + columns[:, None] + np.arange(words) + inner
    if reading.planar:
        gathered = data[memories][
            :, 4 * reading.base + _mask_inside(setting, index, data.shape[1] - 4 * reading.base)
        ][where]
    else:
        index = _mask_inside(setting, index + reading.base, data.shape[1] // 4)
        gathered = data.reshape(len(data), -1, PER_MEMORY)[memories][:, index][
            where, ..., processors % PER_MEMORY
        ]
    shape = len(processors), reading.rows, reading.columns, words // reading.operands, reading.operands
    return np.asarray(gathered.view(np.int8)).reshape(shape)


def _mask_inside(setting: LayerSettings, index: Array, size: int) -> Array:
    last = int(index.max())
    if last >= size:
        raise setting.fault("RPTR_BASE", f"position {last} is read where a data memory ends at {size}")
    return index


def _combine(reading: Reading, values: Array) -> Array:
    """Return the element-wise operation on the last axis, clamped to 8 bits once."""
    if reading.eltwise is None:
        return np.asarray(values[..., 0])
    # The sum over all operands is exact; only the result is clamped.
    if reading.eltwise in (SUBTRACT, ADD):
        wide = values.astype(np.int32)
        rest = wide[..., 1:].sum(-1)
        return np.asarray(np.clip(wide[..., 0] + (rest if reading.eltwise == ADD else -rest), -128, 127))
    operation = np.bitwise_or if reading.eltwise == OR else np.bitwise_xor
    return np.asarray(operation.reduce(values, axis=-1))


@dataclass(frozen=True)
class OutputPlaces:
    """Where channels go: number of the memory, word and byte of each, and words between positions."""

    memory: Array
    word: Array
    lane: Array
    pixel: int


def finish_sums(setting: LayerSettings, sums: Array) -> Array:
    """Return sums as they are written: int8, shifted with rounding, saturated and activated.

    Or the 32-bit sums themselves.
    """
    if setting.writing.wide:
        if setting.relu or setting.absolute:
            raise setting.fault("LCTL", "an activation of 32-bit results", "leave it out")
        return sums.astype(np.int32)
    # Round half towards positive infinity, as the section Rounding of the vendor's document says.
    right = 7 - setting.shift
    shifted = sums + (1 << right - 1) >> right if right > 0 else sums << -right
    result = np.clip(shifted, 0 if setting.relu else -128, 127)
    return np.asarray(np.minimum(np.abs(result), 127) if setting.absolute else result).astype(np.int8)


def find_places(setting: LayerSettings, device: Chip, outputs: int, master: int) -> OutputPlaces:
    """Return where each output channel goes."""
    writing = setting.writing
    if setting.kind is LayerKind.CONVOLUTION:
        passes, slots = np.divmod(np.arange(outputs), writing.slots)
        base, steps, slot, step = (
            np.full(outputs, writing.bases[master]),
            slots // PER_MEMORY,
            slots,
            writing.memory_step,
        )
    else:
        processors = np.repeat(np.array(setting.processors), setting.reading.passes)
        passes = np.tile(np.arange(setting.reading.passes), len(setting.processors))
        base, steps, slot, step = _by_processor(setting, processors, master)
    pointers = (base, steps * step, passes * writing.channel_step)
    memory, word = (
        sum(p)
        for p in zip(*(np.divmod(pointer, 1 << device.offset_bits) for pointer in pointers), strict=True)
    )
    # a memory's number and a word in it are counted apart: no word number carries into the next memory
    lane = slot % PER_MEMORY
    words_per_position = 1
    if writing.wide:
        words_per_position, word = 4, word + lane
    elif setting.kind is LayerKind.PASSTHROUGH:
        words_per_position = setting.reading.passes
    return OutputPlaces(np.asarray(memory), np.asarray(word), lane, words_per_position * writing.pixel)


def _by_processor(setting: LayerSettings, processors: Array, master: int) -> tuple[Array, Array, Array, int]:
    """Base, steps from there, slot and step of layers that do not sum over processors."""
    writing = setting.writing
    if setting.kind is LayerKind.DEPTHWISE and writing.aligned:
        steps = processors // PER_MEMORY - processors.min() // PER_MEMORY
        return np.full(len(processors), writing.bases[master]), steps, processors, writing.memory_step
    if setting.reading.rows and writing.wide:
        raise setting.fault(
            "LCTL", "32-bit results of a layer that does not sum over processors are not modeled"
        )
    quadrants = processors // PER_QUADRANT
    base = np.array([writing.bases[q] for q in quadrants.tolist()])
    first = {q: int(processors[quadrants == q].min()) for q in set(quadrants.tolist())}
    order: dict[int, int] = {}
    for quadrant in first:
        inside = sorted({p for p in processors.tolist() if p // PER_QUADRANT == quadrant})
        order.update((p, rank) for rank, p in enumerate(inside))
    ranks = np.array([order[p] for p in processors.tolist()])
    if setting.kind is LayerKind.PASSTHROUGH:
        # results of a quadrant are packed: processors that are not in use leave no bytes between them
        ranks += np.array([first[q] % PER_MEMORY for q in quadrants.tolist()])
    return base, ranks // PER_MEMORY, ranks, writing.time_step


def write_outputs(setting: LayerSettings, results: Array, places: OutputPlaces, data: Array) -> None:
    """Results [channels, positions] to data, uint8 [memories, bytes].

    Channels of one word are written together, missing ones as 0.

    Raises SimulationError where a result would lie outside of all memories, or two channels in one place.
    """
    positions = np.arange(results.shape[1]) * places.pixel
    limit = data.shape[1] // 4
    if places.memory.max() >= len(data) or places.word.max() + positions[-1] >= limit:
        highest = f"memory {int(places.memory.max())}, word {int(places.word.max() + positions[-1])}"
        raise setting.fault(
            "WPTR_BASE", f"up to {highest} is written; there are {len(data)} memories of {limit} words"
        )
    words = data.view("<u4")
    if setting.writing.wide:
        words[places.memory[:, None], places.word[:, None] + positions] = results.view(np.uint32)
        return
    keys, where = np.unique(places.memory.astype(np.int64) << 32 | places.word, return_inverse=True)
    if len(np.unique(where * PER_MEMORY + places.lane)) < len(where):
        raise setting.fault(
            "WPTR_BASE",
            "two channels are written to the same place",
            "give each quadrant memories of its own",
        )
    # The hardware writes whole words, so bytes of slots that no channel uses become zero.
    packed_words = np.zeros((len(keys), results.shape[1], 4), np.uint8)
    packed_words[where, :, places.lane] = results.view(np.uint8)
    words[(keys >> 32)[:, None], (keys & 0xFFFFFFFF)[:, None] + positions] = packed_words.view("<u4")[:, :, 0]


class Fifos:
    """Four FIFOs, one for the first data memory of each quadrant.

    The fast one is the first of them, or a byte for each.

    control: the value of the FIFOs' control register.
    """

    def __init__(self) -> None:
        self.control = 0
        self._waiting = tuple(bytearray() for _ in range(QUADRANTS))

    def write(self, number: int, data: bytes) -> None:
        """Words."""
        self._waiting[number].extend(whole_words(data, f"FIFO {number}").tobytes())

    def count(self, number: int) -> int:
        """Return how many words wait."""
        return len(self._waiting[number]) // 4

    def take(self, number: int, count: int) -> Array:
        """Remove and return the first words that wait."""
        words = np.frombuffer(bytes(self._waiting[number][: 4 * count]), "<u4")
        del self._waiting[number][: 4 * count]
        return words


def number_fifos(processors: Iterable[int], fast: bool, control: int) -> tuple[int, ...]:
    """FIFOs that feed these processors.

    SimulationError where there is none for one of them, or it is switched off.
    """
    numbers = sorted({p // PER_QUADRANT for p in processors})
    for p in processors:
        # FIFO n leads to processors 16 n to 16 n + 3 (vendor's document, FIFOs).
        if p % PER_QUADRANT >= PER_MEMORY:
            raise SimulationError(
                f"FIFO, processor {p}", "no FIFO leads there", "use processors 0 to 3 of a quadrant"
            )
    for number in numbers:
        if not fast and not control >> 12 + number & 1:
            raise SimulationError(
                f"FIFO {number}", f"it is off, control is {control:#x}", f"set bit {12 + number}"
            )
    return tuple(numbers)
