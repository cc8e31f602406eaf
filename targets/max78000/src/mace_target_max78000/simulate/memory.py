"""Simulates the accelerator's memories as the bus sees them, and defines the errors of the simulator.

The memories are those of data, weights (through their loader), bias, and rows. Each takes and gives bytes at
an offset within a quadrant, little-endian words of 32 bits where it is made of words.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from mace_core.errors import MaceError
from mace_target_max78000.device import KERNEL_BYTES, PER_MEMORY, PER_QUADRANT, PROCESSORS, QUADRANTS, Chip


class SimulationError(MaceError):
    """A program that the hardware cannot run.

    The place names layer, quadrant and register, or the address.
    """


class NotModeledError(SimulationError):
    """A program that may be right, of which this simulator cannot tell what it computes."""


Array = np.ndarray[Any, Any]


def whole_words(data: bytes, place: str) -> Array:
    """Return bytes as 32-bit words; SimulationError if they are none."""
    if len(data) % 4:
        raise SimulationError(place, f"{len(data)} bytes are written where there are words", "write 4 bytes")
    # The bus is little-endian, whatever this machine is.
    return np.frombuffer(data, "<u4")


def spread(words: Array) -> bytes:
    """Return words of 72 bits as the bus shows them: four words of 32 bits for each.

    These hold its first byte, four more, the last four, and nothing.
    words: uint8 [words, 9], bytes of a word from the most significant on.
    """
    bus_words = np.zeros((len(words), 16), np.uint8)
    bus_words[:, 3:12] = words
    return bus_words.view(">u4").astype("<u4").tobytes()


class BusMemory(Protocol):
    """What the bus needs of a memory."""

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """Bytes from an offset on."""

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return bytes from an offset on."""


class DataMemory:
    """Sixteen memories, each shared by four processors.  data: uint8 [memories, bytes]."""

    def __init__(self, device: Chip) -> None:
        self._pitch = device.data_pitch
        self.data = np.zeros((PROCESSORS // PER_MEMORY, device.data_bytes), np.uint8)

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """Any bytes of one memory."""
        memory, first = self._find(quadrant, offset, len(data))
        self.data[memory, first : first + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return any bytes of one memory."""
        memory, first = self._find(quadrant, offset, size)
        return self.data[memory, first : first + size].tobytes()

    def _find(self, quadrant: int, offset: int, size: int) -> tuple[int, int]:
        memory, first = divmod(offset, self._pitch)
        if first + size > self.data.shape[1]:
            raise SimulationError(
                f"quadrant {quadrant}, data memory {memory}",
                f"bytes {first:#x} to {first + size:#x} of {self.data.shape[1]:#x}",
            )
        return quadrant * PER_QUADRANT // PER_MEMORY + memory, first


class WeightMemory:
    """Words of 72 bits of each processor, filled by the packing loader or, where that is off, word by word.

    data: uint8 [processors, words, 9], bytes of a word from the most significant on.
    """

    def __init__(self, device: Chip) -> None:
        self._device = device
        self.data = np.zeros((PROCESSORS, device.first_kernel_words, KERNEL_BYTES), np.uint8)
        self.packing = [False] * QUADRANTS
        """By quadrant, whether written words are packed."""
        self._rest: dict[int, bytes] = {}
        self._next: dict[int, tuple[int, int]] = {}

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """A byte 1 at an odd address begins a run of words there.

        Then its words in ascending order, most significant byte first.
        """
        # Words lie at multiples of four, so an odd address cannot be data: the packing loader takes it as
        # a command.
        p, within = divmod(offset, self._device.kernel_pitch)
        processor = quadrant * PER_QUADRANT + p
        if len(data) == 1 and within & 3 == 1:
            if data != b"\x01":
                raise self._fault(processor, f"the loader takes a byte 1, not {data[0]}")
            if not self.packing[quadrant]:
                raise self._fault(
                    processor, "a run begins while the packing loader is off", "set bit 20 of CTL before"
                )
            self._rest[processor], self._next[processor] = b"", (within - 1 >> 2, within - 1)
        elif len(data) % 4 or within % 4:
            raise self._fault(processor, f"{len(data)} bytes at {within:#x}; weights are written as words")
        elif self.packing[quadrant]:
            self._pack(processor, within, data)
        else:
            self._place(processor, within, data)

    def _pack(self, processor: int, within: int, data: bytes) -> None:
        """Nine bytes make a word; what is left over waits for more."""
        column, expected = self._next.get(processor, (0, -1))
        if within != expected:
            raise self._fault(
                processor,
                f"a word at {within:#x} where the loader is at {expected:#x}",
                "begin with a byte 1 at the address | 1",
            )
        packed = self._rest[processor] + np.frombuffer(data, "<u4").astype(">u4").tobytes()
        words = len(packed) // KERNEL_BYTES
        self._store(processor, column, packed[: words * KERNEL_BYTES])
        self._rest[processor], self._next[processor] = (
            packed[words * KERNEL_BYTES :],
            (column + words, within + len(data)),
        )

    def _place(self, processor: int, within: int, data: bytes) -> None:
        """Four words for each word of weight memory: its first byte, four more, the last four, nothing."""
        if within % 16 or len(data) % 16:
            for i in range(0, len(data), 4):
                self._part(processor, within + i, data[i : i + 4])
            return
        words = np.frombuffer(data, "<u4").reshape(-1, 4).astype(">u4").view(np.uint8).reshape(-1, 16)
        self._store(processor, within // 16, words[:, 3:12].tobytes())

    def _part(self, processor: int, within: int, data: bytes) -> None:
        """One of the four words; the last of them completes the word of weight memory."""
        # The write of the fourth word commits the other three, as in programs without the packing loader.
        self._rest[processor] = data if within % 16 == 0 else self._rest.get(processor, b"") + data
        if within % 16 == 12:
            if len(self._rest[processor]) != 16:
                raise self._fault(
                    processor, f"a word of weight memory is completed at {within:#x} that was not begun"
                )
            self._place(processor, within - 12, self._rest[processor])

    def _store(self, processor: int, column: int, packed: bytes) -> None:
        words = np.frombuffer(packed, np.uint8).reshape(-1, KERNEL_BYTES)
        if column + len(words) > self._device.kernel_capacity(processor):
            raise self._fault(
                processor,
                f"words {column} to {column + len(words)}, {self._device.kernel_capacity(processor)} exist",
            )
        self.data[processor, column : column + len(words)] = words

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return four words for each word of weight memory."""
        p, within = divmod(offset, self._device.kernel_pitch)
        processor = quadrant * PER_QUADRANT + p
        first, last = within // 16, -(-(within + size) // 16)
        if last > self._device.kernel_capacity(processor):
            raise self._fault(
                processor,
                f"words {first} to {last} are read, {self._device.kernel_capacity(processor)} exist",
            )
        bus_bytes = spread(self.data[processor, first:last])
        return bus_bytes[within % 16 : within % 16 + size]

    def _fault(self, processor: int, problem: str, remedy: str = "") -> SimulationError:
        return SimulationError(f"weight memory of processor {processor}", problem, remedy)


class BiasMemory:
    """A byte in each word of 32 bits.  data: uint8 [quadrants, bytes]."""

    def __init__(self, device: Chip) -> None:
        self.data = np.zeros((QUADRANTS, device.bias_bytes), np.uint8)

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """Words, of which the lowest byte counts."""
        words = whole_words(data, f"bias memory of quadrant {quadrant}")
        self.data[quadrant, offset // 4 : offset // 4 + len(words)] = words & 0xFF

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return words, of which the lowest byte counts."""
        return self.data[quadrant, offset // 4 : (offset + size) // 4].astype("<u4").tobytes()


class RowMemory:
    """The accelerator's own memory for rows; a program can only clear it, so nothing is kept."""

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """Anything."""

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return zeros."""
        return bytes(size)


class Gatherer:
    """Gathers four bytes of one channel, from four consecutive positions, to a word.

    The control register names the byte, the registers of layer 0 the address.

    pointer, step: word with its memory above it, and words between positions, when a program switched it on
    in a quadrant. The first read only starts it.
    """

    def __init__(self, device: Chip, data: DataMemory) -> None:
        self._device = device
        self._data = data
        self._next: dict[int, int] = {}
        self._place: dict[int, tuple[int, int, int]] = {}

    def start(self, quadrant: int, pointer: int, step: int, lane: int) -> None:
        """Begin at another address."""
        self._place[quadrant] = pointer, step, lane
        self._next[quadrant] = -1

    def write(self, quadrant: int, offset: int, data: bytes) -> None:
        """Nothing can be written."""
        raise SimulationError(f"quadrant {quadrant}, gathered bytes", "they can only be read")

    def read(self, quadrant: int, offset: int, size: int) -> bytes:
        """Return the next word."""
        if quadrant not in self._place:
            raise SimulationError(
                f"quadrant {quadrant}, gathered bytes",
                "they are read while switched off",
                "set bit 16 of CTL",
            )
        pointer, step, lane = self._place[quadrant]
        done, self._next[quadrant] = self._next[quadrant], self._next[quadrant] + 1
        if done < 0:
            return bytes(size)
        memory, word = divmod(pointer, 1 << self._device.offset_bits)
        places = 4 * (word + step * (4 * done + np.arange(4))) + lane
        if memory >= len(self._data.data) or places[-1] >= self._data.data.shape[1]:
            raise SimulationError(
                f"quadrant {quadrant}, gathered bytes",
                f"memory {memory}, byte {int(places[-1]):#x}: there is none",
            )
        gathered: Array = self._data.data[memory, places]
        return bytes(gathered.tobytes()[:size])
