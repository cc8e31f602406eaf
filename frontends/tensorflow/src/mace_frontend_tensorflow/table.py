"""A LevelDB table: sorted keys with values, as the index of a tensor bundle is written.

Format: https://github.com/google/leveldb/blob/main/doc/table_format.md ; TensorFlow writes its indices
without compression.
"""

from __future__ import annotations

from collections.abc import Iterator

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
"""Bytes of the footer: two handles, padding, the mark."""

LONGEST = 4096
"""Bytes of a key: each is told by what differs from the one before, so that a short file could unfold to much."""

UNCOMPRESSED = 0


class TableError(ValueError):
    """These bytes are no table."""


def read_table(data: bytes) -> dict[bytes, bytes]:
    """All keys with their values; TableError for a malformed table."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise TableError("it does not end with the mark of a table")
    footer = data[-FOOTER:-8]
    _, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    found: dict[bytes, bytes] = {}
    for _, place in _entries(_block(data, index)):
        handle, _ = _handle(place, 0)
        found.update(_entries(_block(data, handle)))
    return found


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Where a block lies: offset and size."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    if offset + size + 1 > len(data):
        raise TableError(f"a block at byte {offset} ends behind the file")
    if data[offset + size] != UNCOMPRESSED:
        raise TableError("it is compressed")
    return data[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise TableError("a block has no end")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise TableError("a block has no room for its restart points")
    key, position = b"", 0
    while position < end:
        shared, position = _varint(block, position)
        own, position = _varint(block, position)
        size, position = _varint(block, position)
        if shared > len(key) or position + own + size > end or shared + own > LONGEST:
            raise TableError(f"the entry before byte {position} is malformed")
        key = key[:shared] + block[position : position + own]
        yield key, block[position + own : position + own + size]
        position += own + size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return value, position
    raise TableError(f"the number before byte {position} does not end")
