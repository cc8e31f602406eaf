"""Reads a tensor bundle: the values of variables by their names in a checkpoint.

It is an index, which is a LevelDB table of BundleEntryProto, and shards of plain bytes beside it
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
from mace_frontend_tensorflow.messages import BundleEntry, BundleHeader, DecodeError
from mace_frontend_tensorflow.table import TableError, read_table
from mace_frontend_tensorflow.tensors import STRING, complete_shape, element_type
from mace_frontend_tensorflow.values import Constant

MAX_STRING_BYTES = 1 << 26
"""Bytes of a string: the table of objects, which names every variable."""


@dataclass(frozen=True)
class Bundle:
    """A checkpoint.

    prefix: the path of its files without what follows the first dot of their names.
    shards: the number of files with bytes.
    entries: BundleEntryProto by name.
    """

    prefix: Path
    shards: int
    entries: Mapping[str, Any]

    def constant(self, name: str) -> Constant | None:
        """Return a variable's value, read when it is first used; None if the checkpoint lacks the name.

        ValueError for an element type or a form that is not supported.
        """
        entry = self.entries.get(name)
        if entry is None:
            return None
        if entry.slices:
            raise ValueError(f"variable {name!r} is split into slices; save it in one piece")
        dtype, shape = element_type(entry.dtype), complete_shape(entry.shape)
        if entry.size != prod(shape) * dtype.size:
            raise ValueError(f"variable {name!r} has {entry.size} bytes for a shape of {list(shape)}")

        def read() -> Array:
            return np.frombuffer(self._bytes(entry), dtype.numpy.newbyteorder("<")).reshape(shape)

        return Constant(name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), dtype, shape, read)

    def text(self, name: str) -> bytes:
        """Return a single string; b"" if the checkpoint has none of this name.

        It is stored as its length, four bytes of checksum and its bytes.
        """
        entry = self.entries.get(name)
        if entry is None or entry.dtype != STRING or entry.shape.dim or not 5 < entry.size < MAX_STRING_BYTES:
            return b""
        data = self._bytes(entry)
        # The length is a varint of at most 10 bytes; it ends with the first byte below 0x80.
        start = next((i + 1 for i, byte in enumerate(data[:10]) if byte < 0x80), 10)
        return data[start + 4 :]

    def _bytes(self, entry: BundleEntry) -> bytes:
        """Return the bytes of an entry.

        Only its shard's number comes from the file, so that a damaged one cannot name another path.
        """
        file = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard_id:05d}-of-{self.shards:05d}")
        try:
            with file.open("rb") as stream:
                is_inside = (
                    0 <= entry.shard_id < self.shards
                    and 0 <= entry.offset <= file.stat().st_size - entry.size
                )
                stream.seek(entry.offset if is_inside else 0)
                data = stream.read(entry.size if is_inside else 0)
        except OSError as error:
            raise MaceError(
                file.name, f"cannot be read: {error.strerror}", "keep the folder `variables` as it was saved"
            ) from error
        if not is_inside:
            raise MaceError(
                file.name,
                "is too short: a variable is stored behind its end",
                "keep the folder `variables` as it was saved",
            )
        return data


def read_bundle(prefix: Path) -> Bundle | None:
    """Return the bundle with this prefix; None if there is none, MaceError for a damaged one."""
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
