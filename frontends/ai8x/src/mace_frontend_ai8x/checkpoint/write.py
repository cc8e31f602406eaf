"""Writes a checkpoint file that PyTorch's `torch.load(file, weights_only=True)` reads.

Equal states become equal bytes, so that builds can be compared.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_core.run.files import write
from mace_frontend_ai8x.checkpoint.archive import DTYPES
from mace_frontend_ai8x.checkpoint.state import CheckpointState

STORAGES: Mapping[tuple[str, int], str] = {
    (np.dtype(t).kind, np.dtype(t).itemsize): name for name, t in DTYPES.items()
}

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all entries, so that equal checkpoints are equal files: the earliest that zip can state."""


def write_state(state: CheckpointState, path: Path) -> None:
    """Write a checkpoint: arch, epoch, state_dict and extras.

    MaceError if the file cannot be written.
    """
    storages: list[bytes] = []
    tensors = _mapping(
        ((name, _tensor(values, storages)) for name, values in state.tensors.items()), ordered=True
    )
    extras = _mapping((name, _plain(value)) for name, value in state.extras.items())
    contents = (
        ("arch", _plain(state.arch)),
        ("epoch", _plain(state.epoch)),
        ("state_dict", tensors),
        ("extras", extras),
    )
    # Protocol 2 is the one that PyTorch itself writes.
    entries = {"data.pkl": b"\x80\x02" + _mapping(contents) + b".", "byteorder": b"little"}
    entries |= {f"data/{key}": data for key, data in enumerate(storages)} | {"version": b"3\n"}
    file = BytesIO()
    # Stored, not compressed: PyTorch reads the numbers of tensors in place.
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}", EPOCH), data)
    write(path, file.getvalue())


def _plain(value: Any) -> bytes:
    """Return the code of a string, a number or None."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            # One byte more than the magnitude needs where its highest bit would read as the sign.
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return b"\x8a" + bytes((len(data),)) + data
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"X" + len(data).to_bytes(4, "little") + data
    raise TypeError(f"{value!r} is no plain value")


def _mapping(items: Iterable[tuple[str, bytes]], *, ordered: bool = False) -> bytes:
    """Return the code of a dictionary whose values' codes are given."""
    start = _global("collections", "OrderedDict") + b")R" if ordered else b"}"
    return start + b"(" + b"".join(_plain(name) + value for name, value in items) + b"u"


def _tensor(values: Array, storages: list[bytes]) -> bytes:
    """Return the code of a tensor; its numbers are added to the storages."""
    dtype = values.dtype.newbyteorder("<")
    # PyTorch counts strides in elements, numpy in bytes.
    strides = [prod(values.shape[axis + 1 :]) for axis in range(values.ndim)]
    kind = _global("torch", STORAGES[dtype.kind, dtype.itemsize])
    storage = (_plain("storage"), kind, _plain(str(len(storages))), _plain("cpu"), _plain(values.size))
    arguments = (
        _tuple(storage) + b"Q",
        _plain(0),
        _shape(values.shape),
        _shape(strides),
        _plain(False),
        _mapping((), ordered=True),
    )
    storages.append(np.ascontiguousarray(values, dtype).tobytes())
    return _global("torch._utils", "_rebuild_tensor_v2") + _tuple(arguments) + b"R"


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _tuple(codes: Iterable[bytes]) -> bytes:
    return b"(" + b"".join(codes) + b"t"


def _shape(numbers: Iterable[int]) -> bytes:
    return _tuple(map(_plain, numbers))
