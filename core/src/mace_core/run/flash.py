"""Measures how much of a program lies in flash."""

from __future__ import annotations

import struct
from pathlib import Path

from mace_core.errors import MaceError

LOADED = 1
"""The type of a segment that is in memory when the program runs (PT_LOAD)."""

_Layout = tuple[str, int, int, str, int]
_LAYOUTS: dict[int, _Layout] = {1: ("I", 28, 42, "IIIIIIII", 4), 2: ("Q", 32, 54, "IIQQQQQQ", 5)}
"""By class of file, 32 or 64 bits: form of an address, position of the table's offset, sizes of entries;
the form of an entry, and which of its fields is the segment's size in the file. See the ELF specification,
chapters 1 and 2."""


def flash_bytes(program: Path) -> int:
    """Return the bytes of code and of initial data: what of an ELF file is written into flash.

    Not its symbols and debug information.

    MaceError for a file that is none.
    """
    data = program.read_bytes()
    if not data.startswith(b"\x7fELF"):
        raise MaceError(program, "is no ELF file: its first bytes are others", "build it again")
    try:
        address, table_at, size_at, entry_form, size_field = _LAYOUTS[data[4]]
        order = {1: "<", 2: ">"}[data[5]]
        (table,) = struct.unpack_from(order + address, data, table_at)
        size, count = struct.unpack_from(order + "HH", data, size_at)
        entries = [struct.unpack_from(order + entry_form, data, table + i * size) for i in range(count)]
    except (KeyError, IndexError, struct.error) as error:
        raise MaceError(program, f"is no ELF file: {error}", "build it again") from None
    return sum(entry[size_field] for entry in entries if entry[0] == LOADED)
