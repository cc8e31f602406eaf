"""Measures a library that was built: bytes of kernels for each level, of programs, of weights, of its files.

The bytes are those of the objects' sections that a process has in its memory and the library has in its
file: code and constants, as `size` of binutils counts them. They are measured in the objects, because the
shared library has no symbols; it has no more of them, and what a linker adds or aligns is in no share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mace_core.errors import MaceError
from mace_core.json_types import Json, JsonObject

UNKNOWN = "unknown"


@dataclass(frozen=True)
class LibrarySize:
    """The bytes of one library.

    shares: of code and constants by what they serve, as `Unit.share` names it.  files: of the linked files by
    name.  None for what could not be measured, such as an object that is not ELF.
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
    """Measure the objects of each share, and the files that were linked of all of them."""
    shares = {share: _add(measure_object(path) for path in paths) for share, paths in objects.items()}
    return LibrarySize(shares, {path.name: _measure_file(path) for path in files})


def measure_object(path: Path) -> int | None:
    """Return the bytes of code and constants in an object; None where they cannot be read.

    Objects of other systems, bitcode, and what a compiler leaves for optimization at link time have no code
    whose size is that of the library.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    total = 0
    try:
        with path.open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if section.name.startswith(".gnu.lto_"):
                    return None
                # What a process finds zeroed is in no file.
                is_in_file = section["sh_type"] != "SHT_NOBITS"
                if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and is_in_file:
                    total += section["sh_size"]
    # The reader seeks to wherever a damaged header points, which overflows for offsets beyond 63 bits.
    except (OSError, ELFError, OverflowError):
        return None
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
