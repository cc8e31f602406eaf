"""Measures a library: bytes of its runtime, of kernels for each level, of programs, of weights, of its files.

The bytes are those of the objects' sections that a process has in its memory and the library has in its
file: code and constants, as `size` of binutils counts them. They are measured in the objects, because the
shared library is stripped, and has the sections of all of them joined. It may have fewer: linkers drop what
nothing calls, and write equal strings once. What they add, such as relocations and gaps for alignment, is in
no share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mace_core.errors import MaceError
from mace_core.json_types import Json, JsonObject

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

UNKNOWN = "unknown"


@dataclass(frozen=True)
class LibrarySize:
    """The bytes of one library.

    shares: of code and constants by what they serve, as `Unit.share` names it.  files: of the static and the
    shared library, by name.  None for what could not be measured, such as an object that is not ELF.
    """

    shares: Mapping[str, int | None]
    files: Mapping[str, int | None]

    def as_json(self) -> Json:
        """Return it as the file of a build has it; null for what is unknown."""
        return {"shares": dict(self.shares), "files": dict(self.files)}

    @classmethod
    def of_json(cls, described: JsonObject) -> LibrarySize:
        """Read what `as_json` wrote."""
        return cls(_read_sizes(described.object("shares")), _read_sizes(described.object("files")))


def measure_library(objects: Mapping[str, Sequence[Path]], files: Sequence[Path]) -> LibrarySize:
    """Measure the objects of each share, and the files that were made of all of them."""
    shares = {share: _add(measure_object(path) for path in paths) for share, paths in objects.items()}
    return LibrarySize(shares, {path.name: _measure_file(path) for path in files})


def measure_object(path: Path) -> int | None:
    """Return the bytes of code and constants in an object; None where they cannot be read.

    Objects of other systems, bitcode, and what a compiler leaves for optimization at link time have no code
    whose size is that of the library; a damaged header tells of sections that are not there.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as stream:
            return _add_sections(ELFFile(stream), path.stat().st_size)
    # The reader seeks to wherever a damaged header points: to no place at all (ValueError), or beyond what an
    # offset holds (OverflowError).
    except (OSError, ELFError, ValueError, OverflowError):
        return None


def _add_sections(elf: ELFFile, file_bytes: int) -> int | None:
    """Return the bytes of the sections that a process has in its memory and the object has in its file."""
    from elftools.elf.constants import SH_FLAGS

    total = 0
    # A compiler writes sections even for a source without code: where there are none, the header is damaged.
    if not elf.num_sections():
        return None
    for section in elf.iter_sections():
        if section.name.startswith(".gnu.lto_"):
            return None
        # What a process finds zeroed is in no file.
        is_in_file = section["sh_type"] != "SHT_NOBITS"
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and is_in_file:
            if section["sh_offset"] + section["sh_size"] > file_bytes:
                return None
            total += section["sh_size"]
    return total


def show_size(size: LibrarySize) -> str:
    """Return one line for people: each share and each file with its bytes."""
    shares = [f"{share} {_show(count)}" for share, count in size.shares.items()]
    files = [f"{name} {_show(count)}" for name, count in size.files.items()]
    return f"  bytes: {', '.join(shares)}; {', '.join(files)}"


def read_size(path: Path) -> LibrarySize | None:
    """Return what a build wrote of a library's size; None where the file is missing or is none of ours."""
    try:
        return LibrarySize.of_json(JsonObject.parse(path.read_text(encoding="utf-8"), path))
    except (OSError, UnicodeDecodeError, MaceError):
        return None


def size_text(size: LibrarySize) -> str:
    """Return the text of the file that `read_size` reads."""
    return json.dumps(size.as_json(), indent=1) + "\n"


def _read_sizes(described: JsonObject) -> dict[str, int | None]:
    return {
        name: None if count is None else described.integer(name) for name, count in described.values.items()
    }


def _add(sizes: Iterable[int | None]) -> int | None:
    """Return the sum; None if any is unknown, because a part of it would be taken for all."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _measure_file(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _show(size: int | None) -> str:
    return UNKNOWN if size is None else str(size)
