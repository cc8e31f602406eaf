"""Encodes tables of the schema by the libraries `flatbuffers` and `tflite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

from mace_core.ir import Array
from mace_tflite_writer.schema import IDENTIFIER

ALIGNMENT = 16
"""Bytes; where the constants of a file begin, as the schema demands of buffers."""


class Encoder:
    """A file under construction. Tables are named as in the schema, their fields as `tflite`'s functions."""

    def __init__(self) -> None:
        self._builder: Any = flatbuffers.Builder(1024)

    def table(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Write a table and return its offset.

        Strings, bytes and arrays are written before it; a field of None is left out. Integers under the name
        of a table or a vector are offsets of what has been written.
        """
        ready = {name: self._write(value) for name, value in fields.items() if value is not None}
        getattr(tflite, f"{kind}Start")(self._builder)
        for name, value in ready.items():
            getattr(tflite, f"{kind}Add{name}")(self._builder, value)
        return int(getattr(tflite, f"{kind}End")(self._builder))

    def vector(self, offsets: Sequence[int]) -> int:
        """Write a vector of tables and return its offset."""
        self._builder.StartVector(4, len(offsets), 4)
        # A FlatBuffer grows towards its front, so the last element is written first.
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def finish(self, root: int) -> bytes:
        """Return the file whose first table is at this offset."""
        self._builder.Finish(root, IDENTIFIER)
        return bytes(self._builder.Output())

    def _write(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._builder.CreateString(value)
        if isinstance(value, bytes):
            return self._align(value)
        if isinstance(value, np.ndarray):
            return self._numbers(value)
        return value

    def _align(self, data: bytes) -> int:
        """Write bytes that begin at a multiple of ALIGNMENT."""
        builder = self._builder
        # CreateByteVector of `flatbuffers` aligns to the 4 bytes of the count alone.
        builder.StartVector(1, len(data), ALIGNMENT)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())

    def _numbers(self, array: Array) -> int:
        return int(self._builder.CreateNumpyVector(array))
