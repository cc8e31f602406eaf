"""Reads HDF5 files of unknown origin.

Only hard links are followed, only data inside of the file is read, and no more of it than the file can hold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from mmap import mmap
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array

DAMAGED = (
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    RecursionError,
    OverflowError,
    AttributeError,
    MemoryError,
    struct.error,
)
"""The exceptions that h5py and the checks here raise for damaged files."""

MAX_TEXT = 1 << 26
"""Bytes of an attribute; the configuration of the largest models takes a few million."""

MAX_NAMES = 1 << 16
"""Strings of an attribute, and pieces into which a long one is cut."""

MAX_RATIO = 20
"""How many times its own size a file may expand to: weights compress badly, zeros without end well."""

SMALL = 1 << 26
"""Bytes up to which that ratio does not count."""

SIGNATURE, HEAP = b"\x89HDF\r\n\x1a\n", b"GCOL\x01"
NAMES = (b"model_config", b"keras_version", b"layer_names", b"weight_names")
"""Attributes that are read."""
VARIABLE_LENGTH = 9
"""The class of types of variable length."""
WORD = 8
"""Bytes of an offset or a length, as h5py writes them; other sizes are refused."""


def check_structure(data: bytes | mmap) -> None:
    """Raise ValueError for a file on which the HDF5 library would hang or run out of memory.

    The library trusts two numbers: the size of an entry of a heap of strings, where 0 keeps it at one place
    for ever, and the length of a string of an attribute, for which it takes memory before it reads.

    A heap is its size and entries of a number, a count, a length and as many bytes, padded to a multiple of
    8; entry 0 is what is free and counts its own header (HDF5 File Format Specification 3.0, III.E).
    """
    is_old = data[: len(SIGNATURE)] == SIGNATURE and data[8] < 2
    sizes = data[13:15] if is_old else data[9:11]
    if data[: len(SIGNATURE)] != SIGNATURE or sizes != bytes((WORD, WORD)):
        raise ValueError("it is no HDF5 file with offsets of 8 bytes")
    # Heaps and attributes are found by their marks wherever they lie: following the file's own offsets to
    # them would mean to trust these.
    for start in _find_all(data, HEAP):
        if not _is_heap_sound(data, start):
            raise ValueError(f"the heap at byte {start} is damaged")
    for mark in NAMES:
        for start in _find_all(data, mark):
            if not _is_attribute_sound(data, start):
                raise ValueError(f"the attribute at byte {start} is damaged")


def _find_all(data: bytes | mmap, mark: bytes) -> Iterator[int]:
    start = data.find(mark)
    while start >= 0:
        yield start
        start = data.find(mark, start + 1)


def _is_attribute_sound(data: bytes | mmap, name: int) -> bool:
    """Tell whether the strings of an attribute state lengths that the file can hold.

    name: where the attribute's name begins; its header lies before (HDF5 File Format Specification 3.0,
    IV.A.2.m).
    """
    head = name - 9 if data[name - 9] == 3 else name - 8
    version = data[head]
    step = WORD if version == 1 else 1  # only the first version pads
    if version not in (1, 2, 3) or name + 4 * WORD > len(data):
        return True
    sizes = [-(-size // step) * step for size in struct.unpack_from("<HHH", data, head + 2)]
    kind, space = name + sizes[0], name + sizes[0] + sizes[1]
    values = space + sizes[2]
    # An attribute whose header leads outside, or whose type is another, is refused by the library or by the
    # reader below.
    if values > len(data) or kind + WORD > len(data) or data[kind] & 15 != VARIABLE_LENGTH:
        return True
    # A list of variable length that is not of characters, or a malformed description of one.
    if data[kind + 1] & 15 != 1 or data[kind + 4 : kind + 8] != bytes((2 * WORD, 0, 0, 0)):
        return False
    first, rank = space + (8 if data[space] == 1 else 4), data[space + 1]
    dims = struct.unpack_from(f"<{rank}Q", data, first) if first + rank * WORD <= values else (1,)
    places = range(values, min(values + 2 * WORD * min(prod(dims), MAX_NAMES), len(data) - 4), 2 * WORD)
    return all(struct.unpack_from("<I", data, place)[0] <= len(data) for place in places)


def _is_heap_sound(data: bytes | mmap, start: int) -> bool:
    """Tell whether the entries of a heap lead to its end."""
    if start + 2 * WORD > len(data):
        return True
    end = start + int(struct.unpack_from("<Q", data, start + WORD)[0])
    entry = start + 2 * WORD
    while entry + 2 * WORD <= min(end, len(data)):
        number, _, _, size = struct.unpack_from("<HHIQ", data, entry)
        step = 2 * WORD + -(-size // WORD) * WORD if number else size
        if step < 2 * WORD or entry + step > end:
            return False
        entry += step
    return True


@dataclass
class Hdf5:
    """An open file.

    size: its bytes.  taken: bytes of data that have been read.
    """

    file: Path
    root: Any
    size: int
    taken: int = field(default=0)

    def group(self, path: str) -> Any | None:
        """Return a group by its path; None if there is none."""
        item = self._find(path)
        return item if isinstance(item, h5py.Group) else None

    def _find(self, path: str) -> Any | None:
        """Return the item at a path; None if there is none.

        MaceError for a link, which may lead out of the file.
        """
        item = self.root
        for part in path.split("/"):
            if not isinstance(item, h5py.Group) or not part or part == "." or part not in item:
                return None
            if not isinstance(item.get(part, getlink=True), h5py.HardLink):
                raise MaceError(self.file.name, f"{path!r} is a link", "save the model again")
            item = item[part]
        return item

    def array(self, path: str) -> Array | None:
        """Return the numbers of a dataset, floats of any width in single precision.

        None if there is no dataset.
        """
        dataset = self._find(path)
        if not isinstance(dataset, h5py.Dataset):
            return None
        self._check(dataset, path)
        array = np.asarray(dataset[()])
        # HDF5 has no bfloat16: Keras writes opaque elements of two bytes, the upper half of a float, with
        # their type beside.
        if as_text(self.attribute(dataset, "dtype")) == "bfloat16" and array.dtype.itemsize == 2:
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind == "V":
            raise MaceError(self.file.name, f"{path!r} holds no numbers", "save the model again")
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    def _check(self, dataset: Any, path: str) -> None:
        """Raise MaceError unless a dataset has numbers that lie in the file.

        Nothing of them is read before.
        """
        if dataset.dtype.kind not in "fiubV":  # V: numbers of two bytes that numpy does not know
            raise MaceError(self.file.name, f"{path!r} holds no numbers", "save the model again")
        size = prod(int(d) for d in dataset.shape) * int(dataset.dtype.itemsize)
        self.taken += size
        if dataset.is_virtual or dataset.external:
            raise MaceError(self.file.name, f"{path!r} lies in another file", "save the model again")
        if self.taken > max(SMALL, MAX_RATIO * self.size):
            problem = f"{path!r} states {size} bytes in a file of {self.size}"
            raise MaceError(self.file.name, problem, "save the model again")

    def attribute(self, holder: Any, name: str) -> Any | None:
        """Return an attribute's value, one string or several; None if there is none."""
        if name not in holder.attrs:
            return None
        # The description is read before the value, for which the library takes as much memory as the file
        # states.
        description = holder.attrs.get_id(name)
        count = prod(description.shape)
        if count and h5py.check_string_dtype(description.dtype) is None:
            raise MaceError(self.file.name, f"attribute {name!r} is no text", "save the model again")
        if count > MAX_NAMES or (count and description.get_storage_size() > MAX_TEXT):
            raise MaceError(self.file.name, f"attribute {name!r} is too large", "save the model again")
        return holder.attrs[name]

    def names(self, holder: Any, name: str) -> list[str]:
        """Return a list of names.

        An attribute of HDF5 has 64 KiB at most: Keras cuts a longer list in pieces, whose attributes are
        numbered.
        """
        values = self.attribute(holder, name)
        if values is not None:
            return [as_text(value) or "" for value in np.asarray(values).reshape(-1)]
        names: list[str] = []
        for number in range(MAX_NAMES):
            piece: Sequence[Any] | None = self.attribute(holder, f"{name}{number}")
            if piece is None:
                break
            names += [as_text(value) or "" for value in np.asarray(piece).reshape(-1)]
        return names


def as_text(value: object) -> str | None:
    """Return a value as a string; None if it is none."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if isinstance(value, str) else None
