"""Writes stubs of Android's libraries, so that a link without an NDK can name the libraries to load.

Android's loader looks for a symbol only in the libraries that a library names as needed. To name one, a
linker must read a file with its soname; the file need not define anything, because a shared library may keep
undefined symbols.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from mace_core.errors import MaceError
from mace_core.run.files import write

NAMES = ("libc.so", "libm.so")

MACHINES: Mapping[str, tuple[int, int, int]] = {
    "aarch64": (183, 64, 0),
    "arm": (40, 32, 0x05000000),  # version 5 of the ABI for embedded ARM
    "i386": (3, 32, 0),
    "x86_64": (62, 64, 0),
}
"""Processor -> e_machine, bits and e_flags of its ELF files.

From the ELF specification and "ELF for the Arm Architecture".
"""

ET_DYN = 3
SHT_STRTAB, SHT_DYNAMIC, SHT_DYNSYM = 3, 6, 11
DT_NULL, DT_SONAME = 0, 14


def write_stubs(abi: str, processor: str) -> tuple[str, ...]:
    """Write empty shared libraries with Android's sonames, once for an ABI; return their paths."""
    folder = cache_folder() / "bionic" / abi
    for name in NAMES:
        content = stub(name, processor)
        # A file that is there and equal stays: its date must not make build systems link again.
        try:
            if not (folder / name).is_file() or (folder / name).read_bytes() != content:
                write(folder / name, content)
        except (OSError, MaceError) as error:
            raise MaceError(folder, "cannot be written", "set XDG_CACHE_HOME to a folder that can") from error
    return tuple(str(folder / name) for name in NAMES)


def cache_folder() -> Path:
    """Return the user's folder for files that can be written again (XDG Base Directory Specification)."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(folder) if folder else Path.home() / ".cache") / "mace"


def stub(soname: str, processor: str) -> bytes:
    """Return an ELF shared library that has a soname and defines nothing.

    To link one, zig would first build its own libraries, for many seconds; so it is put together here. A
    linker reads three sections: the table of symbols with its obligatory first entry, their names, and the
    dynamic section (ELF specification, chapters "Sections" and "Dynamic Linking").
    """
    machine, bits, flags = MACHINES[processor]
    word = "Q" if bits == 64 else "I"
    header, section = struct.Struct(f"<16sHHI3{word}IHHHHHH"), struct.Struct(f"<II4{word}II2{word}")
    symbols = bytes(24 if bits == 64 else 16)  # the entry of index 0 is zeros
    dynamic = struct.pack(f"<4{word}", DT_SONAME, 1, DT_NULL, 0)
    names = f"\0{soname}\0".encode()
    names += bytes(-len(names) % 8)  # the table of sections follows, which is aligned to a word
    # Type; index of the first symbol that is not local; size of an entry; content.
    contents = (
        (SHT_DYNSYM, 1, len(symbols), symbols),
        (SHT_DYNAMIC, 0, len(dynamic) // 2, dynamic),
        (SHT_STRTAB, 0, 0, names),
    )
    last = len(contents)  # the names; section 0 is empty by the specification
    sections, body = bytes(section.size), b""
    for kind, info, entry_size, content in contents:
        names_section = 0 if kind == SHT_STRTAB else last
        offset = header.size + len(body)
        sections += section.pack(
            0, kind, 0, 0, offset, len(content), names_section, info, bits // 8, entry_size
        )
        body += content
    identity = b"\x7fELF" + bytes((bits // 32, 1, 1))
    table = header.size + len(body)
    count = last + 1
    start = header.pack(
        identity, ET_DYN, machine, 1, 0, 0, table, flags, header.size, 0, 0, section.size, count, last
    )
    return start + body + sections
