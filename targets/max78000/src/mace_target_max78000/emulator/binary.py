"""A firmware's ELF file: what lies where, and what it is called."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.errors import MaceError

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
        """A function's address without the bit that says Thumb; MaceError if there is no such symbol."""
        if name not in self.symbols:
            raise MaceError(
                "firmware", f"has no symbol {name}", "link it with its symbols and our board layer"
            )
        return self.symbols[name].address & ~1


def load(elf: bytes) -> Firmware:
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
