"""Describes the processors to the emulator: register names, the sleep instruction, entering interrupts."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any, ClassVar

EXIT = "board_exit"
"""The board layer's function that ends a program; its argument is the status."""


class Core(ABC):
    """A processor of unicorn's.

    wfi: the instruction that sleeps.  status: the register that has a function's first argument.
    """

    wfi: ClassVar[bytes]
    status: ClassVar[str]

    def __init__(self) -> None:
        self.uc: Any = self._create_emulator()

    @abstractmethod
    def _create_emulator(self) -> Any:
        """Return the emulator of this core."""

    @abstractmethod
    def _number(self, name: str) -> int:
        """Return a register's number in unicorn."""

    @abstractmethod
    def reset(self, flash: int) -> int:
        """Prepare for the first instruction; gives its address.  flash: where the program begins."""

    @property
    @abstractmethod
    def listens(self) -> bool:
        """Whether the program lets interrupts in."""

    @abstractmethod
    def interrupt(self, vectors: int) -> int:
        """Enter the accelerator's handler; gives its address.

        vectors: of the Cortex-M4, where the program put its table.
        """

    def resume(self) -> int | None:
        """Return where the program goes on after an exception that ends a handler; None if it was another."""
        return None

    @property
    def program_counter(self) -> int:
        """Address of the next instruction."""
        return self.read("PC")

    def read(self, name: str) -> int:
        """Return a register's value."""
        return int(self.uc.reg_read(self._number(name)))

    def write(self, name: str, value: int) -> None:
        """Set a register."""
        self.uc.reg_write(self._number(name), value)

    def word(self, address: int) -> int:
        """Return a word of memory."""
        (value,) = struct.unpack("<I", self.uc.mem_read(address, 4))
        return int(value)


class CortexM4(Core):
    """ARMv7-M.

    Unicorn has no interrupt controller: the registers that a handler may change are saved here, not on the
    stack.
    """

    wfi = b"\x30\xbf"
    status = "R0"
    IRQ = 101
    FRAME = 32
    """Bytes of the stack that the processor takes for the registers."""
    RETURN = 0xFFFFFFF9

    def _create_emulator(self) -> Any:
        import unicorn
        from unicorn.arm_const import UC_CPU_ARM_CORTEX_M4

        uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        uc.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M4)
        self._saved_context: Any = None
        return uc

    def _number(self, name: str) -> int:
        from unicorn import arm_const

        return int(getattr(arm_const, f"UC_ARM_REG_{name}"))

    def reset(self, flash: int) -> int:
        """Read the stack's end and the first instruction from the vector table."""
        self.write("SP", self.word(flash))
        return self.word(flash + 4)

    @property
    def listens(self) -> bool:
        """Interrupts are not masked, and none is being handled."""
        return not self.read("PRIMASK") and self._saved_context is None

    def interrupt(self, vectors: int) -> int:
        """Keep the registers, and leave in LR what makes a return an exception."""
        # The processor pushes eight registers and loads LR with a value that makes the return an
        # exception return (ARMv7-M architecture, exception entry and EXC_RETURN).
        self._saved_context = self.uc.context_save()
        self.write("SP", self.read("SP") - self.FRAME)
        self.write("LR", self.RETURN)
        return self.word(vectors + 4 * (16 + self.IRQ))

    def resume(self) -> int | None:
        """Give the registers back when a handler returns."""
        if self._saved_context is None or self.program_counter != self.RETURN & ~1:
            return None
        self.uc.context_restore(self._saved_context)
        self._saved_context = None
        return self.program_counter | 1


class RiscV(Core):
    """The RISC-V core; unicorn does what its return from a handler does."""

    wfi = b"\x73\x00\x50\x10"
    status = "A0"
    IRQ = 57
    ENABLED, BEFORE, MACHINE = 1 << 3, 1 << 7, 3 << 11
    """Bits of mstatus: interrupts enabled, and enabled before the handler; the mode before it."""

    def _create_emulator(self) -> Any:
        import unicorn

        return unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)

    def _number(self, name: str) -> int:
        from unicorn import riscv_const

        return int(getattr(riscv_const, f"UC_RISCV_REG_{name}"))

    def reset(self, flash: int) -> int:
        """Return the address of the program, which begins with its first instruction."""
        return flash

    @property
    def listens(self) -> bool:
        """Interrupts are enabled; a handler begins with them disabled."""
        return bool(self.read("MSTATUS") & self.ENABLED)

    def interrupt(self, vectors: int) -> int:
        """As the privileged architecture has it, with a table of jumps."""
        self.write("MEPC", self.program_counter)
        self.write("MCAUSE", 1 << 31 | self.IRQ)
        self.write("MSTATUS", self.read("MSTATUS") & ~self.ENABLED | self.BEFORE | self.MACHINE)
        # In vectored mode, bit 0 of mtvec, each cause has a jump of four bytes (RISC-V privileged
        # architecture).
        base = self.read("MTVEC")
        return (base & ~3) + (4 * self.IRQ if base & 1 else 0)
