"""A tensor bundle: the values of variables by their names in a checkpoint.

An index, which is a LevelDB table of BundleEntryProto, and shards of plain bytes beside it
(tensorflow/core/util/tensor_bundle/tensor_bundle.h).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_tensorflow.held import Constant
from mace_frontend_tensorflow.messages import BundleEntry, BundleHeader, DecodeError
from mace_frontend_tensorflow.table import TableError, read_table
from mace_frontend_tensorflow.tensors import STRING, complete, element_type

MOST_TEXT = 1 << 26
"""Bytes of a text that is read: the table of objects."""


@dataclass(frozen=True)
class Bundle:
    """A checkpoint.

    prefix: its path without the ends of the files' names; entries: BundleEntryProto by name.
    """

    prefix: Path
    shards: int
    entries: Mapping[str, Any]

    def constant(self, name: str) -> Constant | None:
        """A variable's value, read when it is asked for; None if the checkpoint holds no such name.

        ValueError for one of an element type or in a form that is not supported.
        """
        entry = self.entries.get(name)
        if entry is None:
            return None
        if entry.slices:
            raise ValueError(f"variable {name!r} is split into slices; save it whole")
        dtype, shape = element_type(entry.dtype), complete(entry.shape)
        if entry.size != prod(shape) * dtype.size:
            raise ValueError(f"variable {name!r} has {entry.size} bytes for a shape of {list(shape)}")

        def read() -> Array:
            return np.frombuffer(self._bytes(entry), dtype.numpy.newbyteorder("<")).reshape(shape)

        return Constant(name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), dtype, shape, read)

    def text(self, name: str) -> bytes:
        """A single text: its length as a number, four bytes of checksum, its bytes.

        b"" if there is none such.
        """
        entry = self.entries.get(name)
        if entry is None or entry.dtype != STRING or entry.shape.dim or not 5 < entry.size < MOST_TEXT:
            return b""
        data = self._bytes(entry)
        start = next((i + 1 for i, byte in enumerate(data[:10]) if byte < 0x80), 10)
        return data[start + 4 :]

    def _bytes(self, entry: BundleEntry) -> bytes:
        """The bytes of an entry.

        Only its shard's number comes from the file, so that no path can lead elsewhere.
        """
        file = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.shards:05d}")
        try:
            with file.open("rb") as stream:
                inside = (
                    0 <= entry.shard_id < self.shards
                    and 0 <= entry.offset <= file.stat().st_size - entry.size
                )
                stream.seek(entry.offset if inside else 0)
                data = stream.read(entry.size if inside else 0)
        except OSError as error:
            raise MaceError(
                file.name, f"cannot be read: {error.strerror}", "keep the folder `variables` as it was saved"
            ) from error
        if not inside:
            raise MaceError(
                file.name,
                "is too short: a variable lies outside of it",
                "keep the folder `variables` as it was saved",
            )
        return data


def read_bundle(prefix: Path) -> Bundle | None:
    """The bundle with this prefix; None if there is none, MaceError for a damaged one."""
    file = prefix.with_name(f"{prefix.name}.index")
    if not file.is_file():
        return None
    try:
        table = read_table(file.read_bytes())
        header = BundleHeader.FromString(table.pop(b"", b""))
        entries = {name.decode(): BundleEntry.FromString(value) for name, value in table.items()}
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "keep the folder `variables` as it was saved"
        ) from error
    except (TableError, DecodeError, ValueError) as error:
        raise MaceError(
            file.name, f"is no index of variables, or a damaged one: {error}", "save the model again"
        ) from error
    if header.endianness != 0:
        raise MaceError(
            file.name, "was written by a big-endian machine", "save the model on a little-endian one"
        )
    return Bundle(prefix, header.num_shards, entries)
