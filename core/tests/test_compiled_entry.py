"""Entries of a cache with what devices compiled: read, changed and written."""

from __future__ import annotations

import pytest

from mace_core.compiled_entry import HEADER, CompiledEntry, compute_checksum
from mace_core.errors import MaceError

ENTRY = CompiledEntry(b"gpu\0" + b"1.0\0" + bytes(8), b"some code")


@pytest.mark.parametrize(
    ("text", "checksum"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_the_checksum_is_that_of_its_authors(text: bytes, checksum: int) -> None:
    """The vectors are those of test_fnv.c, http://www.isthe.com/chongo/tech/comp/fnv/."""
    assert compute_checksum(text) == checksum


def test_an_entry_is_read_as_it_was_written() -> None:
    assert CompiledEntry.read(ENTRY.write(), "here") == ENTRY
    assert ENTRY.driver == "gpu"
    assert CompiledEntry(b"\xff", b"").driver == "\ufffd"


def test_damaged_entries_are_refused() -> None:
    content = ENTRY.write()
    damaged = [content[:length] for length in range(len(content))]
    damaged += [content + b"\0"]
    for place in range(len(content)):
        damaged.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    # The bytes of text and code change places: neither their sum nor the checksum tells.
    header = HEADER.unpack_from(content)
    swapped = (*header[:2], header[2] + 2**32 - 1, 0, header[4])
    damaged.append(HEADER.pack(*swapped[:2], swapped[2] % 2**32, *swapped[3:]) + content[HEADER.size :])
    for one in damaged:
        with pytest.raises(MaceError, match=r"here: holds no compiled kernels, or damaged ones; write it by"):
            CompiledEntry.read(one, "here")
