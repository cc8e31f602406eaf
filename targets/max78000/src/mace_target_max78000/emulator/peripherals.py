"""The part's other peripherals, as far as the board layer looks at them: registers that keep their values, and a few that do not."""

from __future__ import annotations

from collections.abc import Mapping

UART_STATUS, UART_FIFO = 0x40042004, 0x40042020
SYSTEM_TIMER = 0xE000E018
TIMER_BITS = 24
STEP = 1000
"""Cycles that pass between two looks at the system timer."""

READY: Mapping[int, int] = {0x40000008: 1 << 27 | 1 << 13, 0x40000010: 1 << 1}
"""Bits that clocks and PLL answer with: they are ready at once."""


class Peripherals:
    """Registers by address."""

    def __init__(self) -> None:
        self.console = bytearray()
        self._registers: dict[int, int] = {}
        self._cycles = 0

    def write(self, address: int, value: int, size: int) -> None:
        """Keep it; what goes to the UART is the console."""
        if address == UART_FIFO:
            self.console.append(value & 0xFF)
        elif address == SYSTEM_TIMER:
            self._cycles = 0
        else:
            self._registers[address] = value

    def read(self, address: int, size: int) -> int:
        """What was written, with the bits that the hardware sets; the UART is never busy."""
        if address == SYSTEM_TIMER:
            self._cycles += STEP
            return -self._cycles % (1 << TIMER_BITS)
        if address == UART_STATUS:
            return 0
        return self._registers.get(address, 0) | READY.get(address, 0)
