"""The FIFOs that input comes through while the accelerator runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, QUADRANTS
from mace_target_max78000.simulator.faults import SimulationError
from mace_target_max78000.simulator.memory import Array, whole_words


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
        """Words that wait."""
        return len(self._waiting[number]) // 4

    def take(self, number: int, count: int) -> Array:
        """The first words that wait."""
        words = np.frombuffer(bytes(self._waiting[number][: 4 * count]), "<u4")
        del self._waiting[number][: 4 * count]
        return words


def numbers(processors: Iterable[int], fast: bool, control: int) -> tuple[int, ...]:
    """FIFOs that feed these processors.

    SimulationError where there is none for one of them, or it is switched off.
    """
    found = sorted({p // PER_QUADRANT for p in processors})
    for p in processors:
        if p % PER_QUADRANT >= PER_MEMORY:
            raise SimulationError(
                f"FIFO, processor {p}", "no FIFO leads there", "use processors 0 to 3 of a quadrant"
            )
    for number in found:
        if not fast and not control >> 12 + number & 1:
            raise SimulationError(
                f"FIFO {number}", f"it is off, control is {control:#x}", f"set bit {12 + number}"
            )
    return tuple(found)
