"""The processor and what it sees: memories, peripherals, the accelerator and its interrupt."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mace_core.errors import MaceError
from mace_target_max78000.device import Device
from mace_target_max78000.emulator.image import Firmware, Symbol
from mace_target_max78000.emulator.peripherals import Peripherals

FLASH, SRAM = 0x10000000, 0x20000000
ACCELERATOR = ((0x50000000, 0x10000000), (0x400C0000, 0x1000))
"""Address and size of what the accelerator answers for: all of it, and the fast FIFO."""
PERIPHERALS = ((0x40000000, 0xC0000), (0xE000E000, 0x1000))
VECTOR_TABLE = 0xE000ED08
INTERRUPT = 16 + 101
"""The accelerator's entry in the vector table."""
EXCEPTION_RETURN = 0xFFFFFFF8
"""Where a handler's return leads to, without the bit that says Thumb."""
EXCEPTION_EXIT = 8
"""What unicorn calls that exception."""
FRAME = 32
"""Bytes that the processor keeps on the stack for a handler."""
MICROSECONDS = 120_000_000
WFI = b"\x30\xbf"


class Accelerator(Protocol):
    """What the firmware talks to.  on_done: to be called when a network has ended."""

    on_done: Callable[[], None] | None

    def write(self, address: int, value: int, size: int = 4) -> None:
        """A write of so many bytes."""

    def read(self, address: int, size: int = 4) -> int:
        """A read of so many bytes."""


class Machine:
    """A Cortex-M4 with a firmware in its flash, before its reset."""

    def __init__(self, firmware: Firmware, device: Device, accelerator: Accelerator) -> None:
        import unicorn
        from unicorn import arm_const

        self._arm: Any = arm_const
        self._error: type[Exception] = unicorn.UcError
        uc: Any = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._uc = uc
        uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M4)
        self.firmware = firmware
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
        uc.hook_add(unicorn.UC_HOOK_BLOCK, self._block)
        uc.hook_add(unicorn.UC_HOOK_INTR, self._exception)

    @property
    def console(self) -> str:
        """What the program has said so far."""
        return self._peripherals.console.decode("ascii", "replace").replace("\r\n", "\n")

    def _map(self, base: int, size: int, read: Callable[[int, int], int], write: Callable[[int, int, int], None]) -> None:
        def loaded(_: Any, offset: int, n: int, __: Any) -> int:
            return read(base + offset, n)

        def stored(_: Any, offset: int, n: int, value: int, __: Any) -> None:
            write(base + offset, value, n)

        self._uc.mmio_map(base, size, loaded, None, stored, None)

    def words(self, symbol: Symbol) -> tuple[int, ...]:
        """The 32-bit words of an object in memory."""
        data = self._uc.mem_read(symbol.address, symbol.size)
        return struct.unpack(f"<{symbol.size // 4}I", data[: symbol.size // 4 * 4])

    def patch(self, name: str, words: Sequence[int]) -> None:
        """Other content for an array of the program, from its beginning; MaceError if it has none of this name or a shorter one."""
        symbol = self.firmware.symbols.get(name)
        if symbol is None or symbol.size < 4 * len(words):
            size = symbol.size // 4 if symbol else 0
            raise MaceError("firmware", f"{name} has {size} words, not {len(words)}", "give input of the network's shape")
        self._uc.mem_write(symbol.address, struct.pack(f"<{len(words)}I", *words))

    def run(self) -> int:
        """Execute from reset until the program ends; gives its status."""
        stack, at = struct.unpack("<II", self._uc.mem_read(FLASH, 8))
        self._set("SP", stack)
        end = self.firmware.address("board_exit")
        while (at := self._until_stop(at, end)) != end:
            if self._ready():
                self._interrupt(end)
            elif not (self._slept(at) and self._pending):
                what = "waits for an interrupt that never comes" if self._slept(at) else "does not end"
                raise MaceError("firmware", f"{what} (at 0x{at:08x})\n{self.console}", "look at the accelerator's start, or at the input")
        return self._register("R0")

    def _until_stop(self, at: int, end: int) -> int:
        """Execute until something stops it; gives the address of the next instruction."""
        try:
            self._uc.emu_start(at | 1, end, timeout=MICROSECONDS)
        except self._error as error:
            problem = f"{error} at 0x{self._register('PC'):08x}\n{self.console}"
            raise MaceError("firmware", problem, "look at what the instruction there reads or writes") from error
        return self._register("PC")

    def _register(self, name: str) -> int:
        return int(self._uc.reg_read(getattr(self._arm, f"UC_ARM_REG_{name}")))

    def _set(self, name: str, value: int) -> None:
        self._uc.reg_write(getattr(self._arm, f"UC_ARM_REG_{name}"), value)

    def _done(self) -> None:
        self._pending = True

    def _ready(self) -> bool:
        """Whether an interrupt waits and the program lets it in."""
        return self._pending and not self._register("PRIMASK")

    def _slept(self, at: int) -> bool:
        """Whether the instruction before this address is a WFI."""
        return bytes(self._uc.mem_read(at - len(WFI), len(WFI))) == WFI

    def _block(self, *_: Any) -> None:
        """At the beginning of every basic block."""
        if self._pending and self._ready():
            self._uc.emu_stop()

    def _interrupt(self, end: int) -> None:
        """Run the accelerator's handler as the processor would: registers kept on the stack, all of them restored after it."""
        self._pending = False
        kept = self._uc.context_save()
        table = self._peripherals.read(VECTOR_TABLE, 4) or FLASH
        (handler,) = struct.unpack("<I", self._uc.mem_read(table + 4 * INTERRUPT, 4))
        self._set("SP", self._register("SP") - FRAME)
        self._set("LR", EXCEPTION_RETURN | 1)
        if self._until_stop(handler, end) != EXCEPTION_RETURN:
            raise MaceError("firmware", f"the interrupt's handler does not return\n{self.console}", "let it return")
        self._uc.context_restore(kept)

    def _exception(self, _: Any, number: int, __: Any) -> None:
        """A handler's return ends its run; anything else that gets here is a fault."""
        self._uc.emu_stop()
        if number != EXCEPTION_EXIT:
            raise MaceError(
                "firmware", f"exception {number} at 0x{self._register('PC'):08x}\n{self.console}", "look at the instruction there"
            )
