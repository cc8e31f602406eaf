"""Reads PyTorch's checkpoint files: zip archives (PyTorch 1.6 and later) and plain streams (before 1.6).

    archive = read_archive(Path("best.pth.tar"))
    archive.root["state_dict"]["conv1.op.weight"]       # a StridedTensor: its numbers are not read yet
    archive.array(archive.root["state_dict"]["conv1.op.weight"])

Archives are of stored entries `<name>/data.pkl`, `<name>/data/<key>`; a stream is a pickled magic number,
version, system description and root, and then the keys of all storages and each storage's count and numbers.
The tar files of PyTorch 0.1 are not read.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.names import RESAVE, MalformedError, StridedTensor, TensorStorage
from mace_frontend_ai8x.checkpoint.unpickle import read_pickle

COPY_AGAIN = "copy or download it again"

DTYPES: Mapping[str, str] = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
}

STREAM_START = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""How a file of PyTorch before 1.6 begins: with a pickled magic number."""

VERSION = 1001
"""The number that follows it, the version of the format."""

MAX_AXES = 8
"""Of a tensor; weights of layers have at most 5."""

MAX_FILE_BYTES = 1 << 30
"""The largest file: room for all 1-bit weights of a chip as 32-bit floats, and for an optimizer's."""

ZIP_FAULTS = (
    zipfile.BadZipFile,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What Python's zipfile raises for a damaged archive."""


@dataclass(frozen=True, eq=False)
class Archive:
    """An opened checkpoint file.

    root: its object, in which tensors are described only.  storage: reads the numbers of a storage.
    """

    path: Path
    size: int
    root: Any
    storage: Callable[[TensorStorage], bytes | memoryview]

    def array(self, tensor: StridedTensor) -> Array:
        """Return a tensor's values, as a view of the file's bytes.

        MaceError if the numbers are missing, damaged, too few for the shape, or of a type not in DTYPES.
        """
        try:
            return self._view(tensor)
        except MalformedError as error:
            raise MaceError(self.path, f"its contents are damaged: {error}", COPY_AGAIN) from None

    def _view(self, tensor: StridedTensor) -> Array:
        if tensor.storage.kind not in DTYPES:
            raise MaceError(
                self.path,
                f"a tensor has type {tensor.storage.kind}",
                "save it as 32-bit floats: model.float()",
            )
        dtype = np.dtype(DTYPES[tensor.storage.kind])
        data = self.storage(tensor.storage)
        axes = list(zip(tensor.shape, tensor.stride, strict=True))
        count, available = prod(tensor.shape), len(data) // dtype.itemsize
        # A tensor without elements has no last one, whose place could be checked.
        if not count:
            return np.zeros(0, dtype)
        # as_strided checks nothing: an element outside of the storage would read foreign memory.
        last = tensor.offset + sum((n - 1) * stride for n, stride in axes)
        if count > available or last >= available or len(axes) > MAX_AXES:
            raise MalformedError(
                f"a tensor of shape {list(tensor.shape)} does not lie within its {available} numbers"
            )
        strides = tuple(stride * dtype.itemsize if n > 1 else 0 for n, stride in axes)
        flat = np.frombuffer(data, dtype, available)[tensor.offset :]
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, strides, writeable=False)


def read_archive(path: Path) -> Archive:
    """Open a checkpoint file.

    MaceError if it cannot be read, is no checkpoint, is damaged, or names objects that no checkpoint needs.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise MaceError(
                path,
                "is larger than a checkpoint for this target can be",
                "name a checkpoint file (.pth.tar)",
            )
        data = path.read_bytes()
    except OSError as error:
        raise MaceError(
            path, f"cannot be read: {error.strerror}", "name a checkpoint file (.pth.tar)"
        ) from None
    try:
        return _read_zip(path, data) if data.startswith(b"PK") else _read_stream(path, data)
    except MalformedError as error:
        raise MaceError(path, f"its contents are damaged: {error}", COPY_AGAIN) from None


def _read_zip(path: Path, data: bytes) -> Archive:
    try:
        entries = zipfile.ZipFile(BytesIO(data))
    except ZIP_FAULTS as error:
        raise MalformedError(f"it is not a complete zip archive ({error})") from error
    # The folder is named after the file that was saved, which may have been renamed since.
    names = [name for name in entries.namelist() if name.endswith("/data.pkl")]
    if len(names) != 1:
        raise MaceError(path, "is a zip archive without a checkpoint in it", RESAVE)
    folder = names[0].removesuffix("data.pkl")

    contents: dict[str, bytes] = {}
    left = len(data)

    def read(name: str) -> bytes:
        """Return the content of an entry, whose checksum zipfile checks.

        Entries are not compressed, and all of them together not larger than the file: a small file cannot
        become a large one in memory.
        """
        nonlocal left
        if name in contents:
            return contents[name]
        try:
            info = entries.getinfo(name)
            left -= info.file_size
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or left < 0:
                raise MalformedError(f"entry {name!a} is not stored plainly, as PyTorch writes it")
            contents[name] = entries.read(info)
        except ZIP_FAULTS as error:
            raise MalformedError(f"entry {name!a} cannot be read") from error
        return contents[name]

    # Older versions of PyTorch write no such entry; nearly all machines that train are little-endian.
    if f"{folder}byteorder" in entries.namelist() and read(f"{folder}byteorder") != b"little":
        raise MaceError(
            path, "holds numbers in big-endian order", "save it on a machine with an x86 or ARM processor"
        )
    root = read_pickle(read(names[0]), 0, path).root
    return Archive(path, len(data), root, lambda storage: read(f"{folder}data/{storage.key}"))


def _read_stream(path: Path, data: bytes) -> Archive:
    """Read a file of PyTorch before 1.6: several streams, then the numbers."""
    if not data.startswith(STREAM_START):
        raise MaceError(path, "is no PyTorch checkpoint", "name a checkpoint file (.pth.tar)")
    version = read_pickle(data, len(STREAM_START), path)
    if version.root != VERSION:
        raise MaceError(path, "is of an unknown version of PyTorch", RESAVE)
    # What the writing machine was like; only its position is needed, to find the next stream.
    system = read_pickle(data, version.end, path)
    content = read_pickle(data, system.end, path)
    keys = read_pickle(data, content.end, path)
    spans: dict[str, memoryview] = {}
    position = keys.end
    for key in keys.root if isinstance(keys.root, list) else ():
        known = isinstance(key, str) and key in content.storages
        if not known or (storage := content.storages[key]).kind not in DTYPES or position + 8 > len(data):
            raise MalformedError("its numbers have no type")
        size = (
            int.from_bytes(data[position : position + 8], "little") * np.dtype(DTYPES[storage.kind]).itemsize
        )
        spans[key] = memoryview(data)[position + 8 : position + 8 + size]
        position += 8 + size
    if position > len(data):
        raise MalformedError("its numbers are cut off")

    def read(storage: TensorStorage) -> memoryview:
        if storage.key not in spans:
            raise MalformedError("the numbers of a tensor are missing")
        return spans[storage.key]

    return Archive(path, len(data), content.root, read)
