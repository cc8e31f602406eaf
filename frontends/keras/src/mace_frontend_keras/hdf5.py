"""What is read from an HDF5 file that nobody vouches for: hard links only, data that lies in the file, no more of it than fits."""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
"""What h5py and the checks here raise for files that are damaged."""

LARGEST_TEXT = 1 << 26
MOST_NAMES = 1 << 16
SMALL = 1 << 26
LARGEST_RATIO = 20


SIGNATURE, HEAP = b"\x89HDF\r\n\x1a\n", b"GCOL\x01"
NAMES = (b"model_config", b"keras_version", b"layer_names", b"weight_names")
"""Attributes that are read."""
TEXTS = 9
"""The class of types of variable length."""
WORD = 8
"""Bytes of an offset or a length, as h5py writes them."""


def check_structure(data: bytes | mmap) -> None:
    """ValueError for a file on which the HDF5 library would never end, or take memory for a text that is longer than the file.

    That is a heap of texts with an entry that leads nowhere, or an attribute of texts that state such a
    length.

    A heap is its size and entries of a number, a count, a length and as many bytes, padded to a multiple of
    8; entry 0 is what is free and counts its own header (HDF5 File Format Specification 3.0, III.E).
    """
    old = data[: len(SIGNATURE)] == SIGNATURE and data[8] < 2
    sizes = data[13:15] if old else data[9:11]
    if data[: len(SIGNATURE)] != SIGNATURE or sizes != bytes((WORD, WORD)):
        raise ValueError("it is no HDF5 file with offsets of 8 bytes")
    for mark in (HEAP, *NAMES):
        at = data.find(mark)
        while at >= 0:
            if not (_ends(data, at) if mark is HEAP else _fits(data, at)):
                raise ValueError(f"the {'heap' if mark is HEAP else 'attribute'} at byte {at} is damaged")
            at = data.find(mark, at + 1)


def _fits(data: bytes | mmap, name: int) -> bool:
    """Whether the texts of an attribute with its name at this place state lengths that the file can hold (IV.A.2.m)."""
    head = name - 9 if data[name - 9] == 3 else name - 8
    version = data[head]
    step = WORD if version == 1 else 1  # only the first version pads
    if version not in (1, 2, 3) or name + 4 * WORD > len(data):
        return True
    sizes = [-(-size // step) * step for size in struct.unpack_from("<HHH", data, head + 2)]
    kind, space = name + sizes[0], name + sizes[0] + sizes[1]
    values = space + sizes[2]
    if values > len(data) or kind + WORD > len(data) or data[kind] & 15 != TEXTS:
        return True
    # No text, or no description of one.
    if data[kind + 1] & 15 != 1 or data[kind + 4 : kind + 8] != bytes((2 * WORD, 0, 0, 0)):
        return False
    first, rank = space + (8 if data[space] == 1 else 4), data[space + 1]
    dims = struct.unpack_from(f"<{rank}Q", data, first) if first + rank * WORD <= values else (1,)
    places = range(values, min(values + 2 * WORD * min(prod(dims), MOST_NAMES), len(data) - 4), 2 * WORD)
    return all(struct.unpack_from("<I", data, place)[0] <= len(data) for place in places)


def _ends(data: bytes | mmap, at: int) -> bool:
    """Whether the entries of a heap lead to its end."""
    if at + 2 * WORD > len(data):
        return True
    end = at + int(struct.unpack_from("<Q", data, at + WORD)[0])
    place = at + 2 * WORD
    while place + 2 * WORD <= min(end, len(data)):
        number, _, _, size = struct.unpack_from("<HHIQ", data, place)
        step = 2 * WORD + -(-size // WORD) * WORD if number else size
        if step < 2 * WORD or place + step > end:
            return False
        place += step
    return True


@dataclass
class Hdf5:
    """An open file; size: its bytes.  taken: bytes of data that have been read."""

    file: Path
    root: Any
    size: int
    taken: int = field(default=0)

    def group(self, path: str) -> Any | None:
        """A group by its path; None if there is none."""
        found = self._find(path)
        return found if isinstance(found, h5py.Group) else None

    def _find(self, path: str) -> Any | None:
        """What a path of plain links leads to: links to other files would be a way out of this one."""
        at = self.root
        for part in path.split("/"):
            if not isinstance(at, h5py.Group) or not part or part == "." or part not in at:
                return None
            if not isinstance(at.get(part, getlink=True), h5py.HardLink):
                raise MaceError(self.file.name, f"{path!r} is a link", "save the model again")
            at = at[part]
        return at

    def array(self, path: str) -> Array | None:
        """The numbers of a dataset, whatever their type in single precision unless they are whole.

        None if there is none.
        """
        found = self._find(path)
        if not isinstance(found, h5py.Dataset):
            return None
        self._check(found, path)
        array = np.asarray(found[()])
        if text_of(self.attribute(found, "dtype")) == "bfloat16" and array.dtype.itemsize == 2:
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind == "V":
            raise MaceError(self.file.name, f"{path!r} holds no numbers", "save the model again")
        return array.astype(np.float32) if array.dtype.kind == "f" else array

    def _check(self, found: Any, path: str) -> None:
        if found.dtype.kind not in "fiubV":  # V: half numbers of two bytes that numpy does not know
            raise MaceError(self.file.name, f"{path!r} holds no numbers", "save the model again")
        bytes_ = prod(int(d) for d in found.shape) * int(found.dtype.itemsize)
        self.taken += bytes_
        if found.is_virtual or found.external:
            raise MaceError(self.file.name, f"{path!r} lies in another file", "save the model again")
        if self.taken > max(SMALL, LARGEST_RATIO * self.size):
            raise MaceError(
                self.file.name,
                f"{path!r} states {bytes_} bytes in a file of {self.size}",
                "save the model again",
            )

    def attribute(self, holder: Any, name: str) -> Any | None:
        """An attribute's value; None if there is none."""
        if name not in holder.attrs:
            return None
        about = holder.attrs.get_id(name)
        count = prod(about.shape)
        if count and h5py.check_string_dtype(about.dtype) is None:
            raise MaceError(self.file.name, f"attribute {name!r} is no text", "save the model again")
        if count > MOST_NAMES or (count and about.get_storage_size() > LARGEST_TEXT):
            raise MaceError(self.file.name, f"attribute {name!r} is too large", "save the model again")
        return holder.attrs[name]

    def names(self, holder: Any, name: str) -> list[str]:
        """A list of names; long ones are cut in pieces whose attributes are numbered."""
        whole = self.attribute(holder, name)
        if whole is not None:
            return [text_of(v) or "" for v in np.asarray(whole).reshape(-1)]
        found: list[str] = []
        for number in range(MOST_NAMES):
            piece: Sequence[Any] | None = self.attribute(holder, f"{name}{number}")
            if piece is None:
                break
            found += [text_of(v) or "" for v in np.asarray(piece).reshape(-1)]
        return found


def text_of(value: object) -> str | None:
    """A value as text; None if it is none."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value) if isinstance(value, str) else None
