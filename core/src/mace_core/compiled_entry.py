"""Reads and writes what devices compiled, as the engine stores it in an application's cache.

The format is that of mace_engine_cache.c: a header, a text of facts on which the code depends, and the code.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mace_core.errors import MaceError

MAGIC = b"MACEKERN"
"""How an entry begins."""

FORMAT = 1
HEADER = struct.Struct("<8sIIQQ")
"""Magic, format, bytes of the text, bytes of the code, checksum of both.

Devices with another order of bytes write another magic number as format, and so no entry that is read here.
"""


@dataclass(frozen=True)
class CompiledEntry:
    """What a device compiled of a part.

    facts: the text, filled up with zeros so that the code is aligned.  code: in a format of the driver's.
    """

    facts: bytes
    code: bytes

    @classmethod
    def read(cls, content: bytes, place: str) -> CompiledEntry:
        """Return the entry with this content; MaceError for one that is damaged or of another format."""
        if len(content) >= HEADER.size:
            magic, number, fact_bytes, code_bytes, checksum = HEADER.unpack_from(content)
            rest = content[HEADER.size :]
            is_whole = len(rest) == fact_bytes + code_bytes and compute_checksum(rest) == checksum
            if magic == MAGIC and number == FORMAT and is_whole:
                return cls(rest[:fact_bytes], rest[fact_bytes:])
        raise MaceError(place, "holds no compiled kernels, or damaged ones", "write it by mace tune")

    @property
    def driver(self) -> str:
        """The name of the driver, which is the first fact."""
        return self.facts.split(b"\0", 1)[0].decode(errors="replace")

    def write(self) -> bytes:
        """Return the content of a file with the entry."""
        body = self.facts + self.code
        header = HEADER.pack(MAGIC, FORMAT, len(self.facts), len(self.code), compute_checksum(body))
        return header + body


def compute_checksum(data: bytes) -> int:
    """Return FNV-1a of 64 bits, see http://www.isthe.com/chongo/tech/comp/fnv/."""
    checksum = 0xCBF29CE484222325
    for byte in data:
        checksum = (checksum ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return checksum
