"""Stand-ins for Android's libraries, so that a link without an NDK can say which ones the loader shall bring.

Android's loader looks for a symbol only in the libraries that a library names as needed. To name one, a
linker wants to see a file with its soname; what that file defines does not matter, since symbols without a
definition may remain.
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
"""Processor -> e_machine, bits and e_flags of its ELF files, from the ELF specification and ARM's supplement to it."""

SHT_STRTAB, SHT_DYNAMIC, SHT_DYNSYM = 3, 6, 11
DT_NULL, DT_SONAME = 0, 14


def stubs(abi: str, processor: str) -> tuple[str, ...]:
    """Write empty shared libraries with Android's sonames, once for an ABI; return their paths."""
    folder = cache() / "bionic" / abi
    for name in NAMES:
        content = stand_in(name, processor)
        try:
            if not (folder / name).is_file() or (folder / name).read_bytes() != content:
                write(folder / name, content)
        except (OSError, MaceError) as error:
            raise MaceError(folder, "cannot be written", "set XDG_CACHE_HOME to a folder that can") from error
    return tuple(str(folder / name) for name in NAMES)


def cache() -> Path:
    """Where files are kept that can be made again: the user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".cache") / "mace"


def stand_in(soname: str, processor: str) -> bytes:
    """Return an ELF shared library that defines nothing and tells its soname.

    Linking one would make zig build its libraries first, for many seconds. A linker reads three sections of
    it: the symbols, which are the empty one alone, their names, and the dynamic section (ELF specification,
    chapters "Sections" and "Dynamic Linking").
    """
    machine, bits, flags = MACHINES[processor]
    word = "Q" if bits == 64 else "I"
    header, section = struct.Struct(f"<16sHHI3{word}IHHHHHH"), struct.Struct(f"<II4{word}II2{word}")
    symbols = bytes(24 if bits == 64 else 16)
    dynamic = struct.pack(f"<4{word}", DT_SONAME, 1, DT_NULL, 0)
    names = f"\0{soname}\0".encode()
    names += bytes(-len(names) % 8)  # the table of sections after them is aligned
    # 1: the first symbol that is not local.
    contents = ((SHT_DYNSYM, 1, symbols), (SHT_DYNAMIC, 0, dynamic), (SHT_STRTAB, 0, names))
    sections, body = bytes(section.size), b""
    for kind, info, content in contents:
        entry = 0 if kind == SHT_STRTAB else len(symbols) if kind == SHT_DYNSYM else len(dynamic) // 2
        strings = 0 if kind == SHT_STRTAB else len(contents)
        sections += section.pack(
            0, kind, 0, 0, header.size + len(body), len(content), strings, info, bits // 8, entry
        )
        body += content
    identity = b"\x7fELF" + bytes((bits // 32, 1, 1))
    place = header.size + len(body)
    count, last = len(contents) + 1, len(contents)
    start = header.pack(
        identity, 3, machine, 1, 0, 0, place, flags, header.size, 0, 0, section.size, count, last
    )
    return start + body + sections
