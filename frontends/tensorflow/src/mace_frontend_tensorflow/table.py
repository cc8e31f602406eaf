"""Reads a LevelDB table: sorted keys with values, the form of the index of a tensor bundle.

Format: https://github.com/google/leveldb/blob/main/doc/table_format.md ; TensorFlow writes its indices
without compression.
"""

from __future__ import annotations

from collections.abc import Iterator

MAGIC = 0xDB4775248B80FB57
FOOTER = 48
"""Bytes of the footer: two handles, padding, the magic number."""

MAX_KEY_BYTES = 4096
"""Bytes of a key: each is stored as its difference from the one before, so that a few bytes can make many."""

UNCOMPRESSED = 0


class TableError(ValueError):
    """Raised for bytes that are no table."""


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return all keys with their values; TableError for a malformed table."""
    if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
        raise TableError("it does not end as a table does")
    footer = data[-FOOTER:-8]
    _, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    table: dict[bytes, bytes] = {}
    # The index has an entry for each block, whose value is the handle of that.
    for _, value in _entries(_block(data, index)):
        handle, _ = _handle(value, 0)
        table.update(_entries(_block(data, handle)))
    return table


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Read a handle: offset and size of a block. Return it and the position behind it."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    """Return the bytes of a block, behind which stands the kind of its compression."""
    offset, size = handle
    if offset + size + 1 > len(data):
        raise TableError(f"a block at byte {offset} ends behind the file")
    if data[offset + size] != UNCOMPRESSED:
        raise TableError("it is compressed")
    return data[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block.

    Each entry is three numbers, the bytes of its key that the one before lacks, and its value. Restart
    points, which are there for binary search, lie behind the last entry.
    """
    if len(block) < 4:
        raise TableError("a block has no end")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise TableError("a block has no room for its restart points")
    key, position = b"", 0
    while position < end:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        size, position = _varint(block, position)
        if shared > len(key) or position + unshared + size > end or shared + unshared > MAX_KEY_BYTES:
            raise TableError(f"the entry before byte {position} is malformed")
        value_start = position + unshared
        key = key[:shared] + block[position:value_start]
        position = value_start + size
        yield key, block[value_start:position]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read an integer of seven bits a byte, the lowest first. Return it and the position behind it."""
    value = shift = 0
    # 64 bits fill 10 bytes.
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return value, position
    raise TableError(f"the number before byte {position} does not end")
