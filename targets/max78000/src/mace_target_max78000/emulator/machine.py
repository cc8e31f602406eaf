"""Executes a firmware: reads its ELF file, and runs it on memories, peripherals and an accelerator.

The peripherals are those that the board layer looks at: registers that keep their values, and a few that do
not.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mace_core.errors import MaceError
from mace_target_max78000.device import Chip
from mace_target_max78000.emulator.cores import EXIT, CortexM4, RiscV

CORES = ((32, "EM_ARM"), (32, "EM_RISCV"))


@dataclass(frozen=True)
class Symbol:
    """A function or an object: its address and its bytes."""

    address: int
    size: int


@dataclass(frozen=True)
class Firmware:
    """What a loader brings into flash, as (address, bytes), and the symbols by name.

    arm: for the Cortex-M4, not the RISC-V core.
    """

    segments: tuple[tuple[int, bytes], ...]
    symbols: Mapping[str, Symbol]
    arm: bool

    @property
    def thumb(self) -> int:
        """The bit in an instruction's address that says Thumb."""
        return int(self.arm)

    def address(self, name: str) -> int:
        """Return a function's address without the bit that says Thumb.

        MaceError if there is no such symbol.
        """
        if name not in self.symbols:
            raise MaceError(
                "firmware", f"has no symbol {name}", "link it with its symbols and our board layer"
            )
        return self.symbols[name].address & ~1


def load_firmware(elf: bytes) -> Firmware:
    """Read an ELF file; MaceError if it is none, or not one for one of the part's cores."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        file = ELFFile(io.BytesIO(elf))
    except ELFError as error:
        raise MaceError(
            "firmware", f"is no ELF file ({error})", "give the firmware.elf that the build made"
        ) from error
    if (file.elfclass, file["e_machine"]) not in CORES:
        raise MaceError("firmware", f"is for {file['e_machine']}", "build it for cortex-m4")
    segments = tuple((s["p_paddr"], s.data()) for s in file.iter_segments("PT_LOAD") if s["p_filesz"])
    table = file.get_section_by_name(".symtab")
    named = table.iter_symbols() if table is not None else ()
    return Firmware(
        segments,
        {s.name: Symbol(s["st_value"], s["st_size"]) for s in named if s.name},
        file["e_machine"] == "EM_ARM",
    )


FLASH, SRAM = 0x10000000, 0x20000000
ACCELERATOR = ((0x50000000, 0x10000000), (0x400C0000, 0x1000))
"""Address and size of what the accelerator answers for: all of it, and the fast FIFO."""
PERIPHERALS = ((0x40000000, 0xC0000), (0xE000E000, 0x1000), (0xE5070000, 0x1000))
VECTOR_TABLE = 0xE000ED08
SECONDS = 120


class Accelerator(Protocol):
    """What the firmware talks to.  on_done: to be called when a network has ended."""

    on_done: Callable[[], None] | None

    def write(self, address: int, value: int, size: int, /) -> None:
        """Write so many bytes."""

    def read(self, address: int, size: int, /) -> int:
        """Read so many bytes."""


class Machine:
    """A firmware in the flash of a part, before its reset."""

    def __init__(self, firmware: Firmware, device: Chip, accelerator: Accelerator) -> None:
        import unicorn

        self.firmware = firmware
        self._core = CortexM4() if firmware.arm else RiscV()
        self._uc = uc = self._core.uc
        self._error: type[Exception] = unicorn.UcError
        self._ran_out: int = unicorn.UC_QUERY_TIMEOUT
        self._peripherals = Peripherals()
        self._pending = False
        accelerator.on_done = self._done
        uc.mem_map(FLASH, device.flash)
        uc.mem_map(SRAM, device.sram)
        for address, data in firmware.segments:
            uc.mem_write(address, data)
        for base, size in ACCELERATOR:
            self._map(base, size, accelerator.read, accelerator.write)
        for base, size in PERIPHERALS:
            self._map(base, size, self._peripherals.read, self._peripherals.write)
        # Unicorn has no interrupt controller, so interrupts are taken between basic blocks.
        uc.hook_add(unicorn.UC_HOOK_BLOCK, self._block)
        uc.hook_add(unicorn.UC_HOOK_INTR, lambda *_: uc.emu_stop())

    def _map(
        self, base: int, size: int, read: Callable[[int, int], int], write: Callable[[int, int, int], None]
    ) -> None:
        def on_read(_: Any, offset: int, n: int, __: Any) -> int:
            return read(base + offset, n)

        def on_write(_: Any, offset: int, n: int, value: int, __: Any) -> None:
            write(base + offset, value, n)

        self._uc.mmio_map(base, size, on_read, None, on_write, None)

    @property
    def console(self) -> str:
        """What the program has said so far."""
        return self._peripherals.console.decode("ascii", "replace").replace("\r\n", "\n")

    def words(self, symbol: Symbol) -> tuple[int, ...]:
        """Return the 32-bit words of an object in memory."""
        return struct.unpack(f"<{symbol.size // 4}I", self._uc.mem_read(symbol.address, symbol.size // 4 * 4))

    def patch(self, name: str, words: Sequence[int]) -> None:
        """Other content for an array of the program, from its beginning.

        MaceError if it has none of this name or a shorter one.
        """
        symbol = self.firmware.symbols.get(name)
        if symbol is None or symbol.size < 4 * len(words):
            size = symbol.size // 4 if symbol else 0
            raise MaceError(
                "firmware", f"{name} has {size} words, not {len(words)}", "give input of the network's shape"
            )
        self._uc.mem_write(symbol.address, struct.pack(f"<{len(words)}I", *words))

    def run(self) -> int:
        """Execute from reset until the program ends; gives its status."""
        end = self.firmware.address(EXIT)
        address = self._core.reset(min(address for address, _ in self.firmware.segments))
        deadline = time.process_time() + SECONDS
        while (stopped := self._until_stop(address, end, deadline)) != end:
            address = self._next(stopped, deadline)
        return self._core.read(self._core.status)

    def _until_stop(self, address: int, end: int, deadline: float) -> int:
        """Execute until something stops it; gives the address of the next instruction."""
        try:
            self._uc.emu_start(address, end, timeout=max(1, round(1e6 * (deadline - time.process_time()))))
        except self._error as error:
            raise self._fault(str(error), "look at what the instruction there reads or writes") from error
        return self._core.program_counter

    def _next(self, stopped: int, deadline: float) -> int:
        """Return where to go on after a stop that is not the end."""
        if self._uc.query(self._ran_out) and time.process_time() < deadline:
            # Unicorn's timer is the wall's: other work had the processor.
            return stopped | self.firmware.thumb
        if (resumed := self._core.resume()) is not None:
            return resumed
        if self._pending and self._core.listens:
            self._pending = False
            return self._core.interrupt(self._peripherals.read(VECTOR_TABLE, 4))
        slept = self._uc.mem_read(stopped - len(self._core.wfi), len(self._core.wfi)) == self._core.wfi
        if slept and self._pending:  # it will open interrupts
            return stopped | self.firmware.thumb
        if slept:
            raise self._fault(
                "waits for an interrupt that never comes", "look at the accelerator's start, or at the input"
            )
        if time.process_time() >= deadline:
            raise self._fault(f"does not end within {SECONDS} s", "look at what it waits for")
        raise self._fault("meets an exception", "look at the instruction there")

    def _fault(self, problem: str, remedy: str) -> MaceError:
        return MaceError(
            "firmware", f"{problem}, at 0x{self._core.program_counter:08x}\n{self.console}", remedy
        )

    def _done(self) -> None:
        self._pending = True

    def _block(self, *_: Any) -> None:
        """At the beginning of every basic block: an interrupt that waits may be let in."""
        if self._pending and self._core.listens:
            self._uc.emu_stop()


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
        """Return what was written, with the bits that the hardware sets; the UART is never busy."""
        if address == SYSTEM_TIMER:
            self._cycles += STEP
            return -self._cycles % (1 << TIMER_BITS)
        if address == UART_STATUS:
            return 0
        return self._registers.get(address, 0) | READY.get(address, 0)
