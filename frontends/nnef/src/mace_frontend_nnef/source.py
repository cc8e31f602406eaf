"""Reads the files of a model: the description, and the files of its variables.

Both may come from strangers: what a header states is compared with the size of the file before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np

from mace_core.api import Files
from mace_core.errors import MaceError
from mace_core.importer import RefusedError
from mace_core.ir import Array, Shape
from mace_frontend_nnef.folder import GRAPH, QUANTIZATION
from mace_frontend_nnef.syntax import NnefDescription, NnefSyntaxError, parse

MAX_TEXT_BYTES = 1 << 24
"""Of a description; those of large networks have some hundred KB, because weights lie in other files."""

# The header of a variable has 128 bytes, with room for 8 sizes (NNEF 1.0.5, section 5.1).
MAX_RANK = 8
HEADER_BYTES = 128
MAGIC = b"N\xef\x01\x00"
"""Two bytes that mark the format, major and minor version."""

FLOAT, UINT, QUINT, QINT, INT, BOOL = range(6)
ITEM_TYPES = {
    (FLOAT, 16): "<f2",
    (FLOAT, 32): "<f4",
    (FLOAT, 64): "<f8",
    **{(UINT, 8 << i): f"<u{1 << i}" for i in range(4)},
    **{(INT, 8 << i): f"<i{1 << i}" for i in range(4)},
    (BOOL, 1): "bits",
    (BOOL, 8): "|b1",
}
"""Type and bits of an item by the header -> numpy's type, little-endian; "bits" for eight booleans a byte."""

DTYPES = {"scalar": np.float32, "integer": np.int64, "logical": np.bool_}
"""NNEF's types -> numpy's. A scalar has no stated precision; a library computes in single precision."""


@dataclass(frozen=True)
class NnefSource:
    """A description that was read; its folder has the files of the variables."""

    file: Path
    graph: NnefDescription

    def variable(self, label: str, shape: Shape, kind: str) -> Array:
        """Return the elements of a variable; RefusedError if its file is missing, damaged or elsewhere."""
        path = self._path(label)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RefusedError(
                f"variable {label!r}: {path.name}: {error.strerror}; copy the whole folder of the model"
            ) from None
        try:
            array = parse_tensor(data)
        except ValueError as error:
            raise RefusedError(f"variable {label!r}: {error}; export the model again") from None
        if array.shape != shape:
            problem = (
                f"variable {label!r} has shape {list(array.shape)} in its file, {list(shape)} in the graph"
            )
            raise RefusedError(f"{problem}; export the model again")
        return array.astype(DTYPES[kind])

    def _path(self, label: str) -> Path:
        """Return the file of a variable; RefusedError if its label leads out of the model's folder.

        A label becomes a path: a model of a stranger must not read other files of the user.
        """
        folder = self.file.parent
        path = PurePosixPath(label.removeprefix("/") + ".dat")
        file = folder / path
        is_inside = file.resolve().is_relative_to(folder.resolve())  # symbolic links are followed
        if ".." in path.parts or path.is_absolute() or "\\" in label or not is_inside:
            raise RefusedError(f"variable {label!r} lies outside of the model's folder; export it again")
        return file


def parse_tensor(data: bytes) -> Array:
    """Return the tensor that the content of a `.dat` file holds; ValueError if it holds none."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        raise ValueError("its file is no tensor of NNEF 1.0")
    length, rank, *words = np.frombuffer(data, "<u4", count=31, offset=4).tolist()
    if rank > MAX_RANK:
        raise ValueError(f"its file states a rank of {rank}")
    shape, bits, item = tuple(words[:rank]), words[MAX_RANK], words[MAX_RANK + 1]
    # Version 1.0 has no item type for signed integers: they are UINT with 1 in the first reserved word.
    if item == UINT and words[MAX_RANK + 2] != 0:
        item = INT
    if item in (QUINT, QINT):
        raise ValueError("its file holds quantized integers, which are not supported; export it in floats")
    numpy_type = ITEM_TYPES.get((item, bits))
    if numpy_type is None:
        raise ValueError(f"its file holds items of type {item} and {bits} bits")
    count = prod(shape)
    expected = (count + 7) // 8 if numpy_type == "bits" else count * bits // 8
    if length != expected or len(data) != HEADER_BYTES + expected:
        raise ValueError(
            f"its file holds {len(data) - HEADER_BYTES} bytes, {expected} by the shape {list(shape)}"
        )
    if numpy_type == "bits":
        packed = np.frombuffer(data, np.uint8, offset=HEADER_BYTES)
        return np.unpackbits(packed)[:count].astype(bool).reshape(shape)
    if numpy_type == "|b1":
        # Not read as bool: numpy leaves any byte but 0 and 1 as it is, and computes nonsense with it.
        return np.asarray(np.frombuffer(data, np.uint8, offset=HEADER_BYTES) != 0).reshape(shape)
    return np.frombuffer(data, numpy_type, offset=HEADER_BYTES).reshape(shape)


def read(files: Files) -> NnefSource:
    """Read the description of a model; MaceError if a file is missing, damaged, or one too many."""
    if len(files) != 1:
        raise MaceError(
            files[0].name if files else "model",
            f"an NNEF model is one folder, {len(files)} files are named",
            f"name the folder or its {GRAPH} alone",
        )
    file = files[0] / GRAPH if files[0].is_dir() else files[0]
    if (file.parent / QUANTIZATION).exists():
        raise MaceError(
            file.name,
            "has a graph.quant in its folder; quantized NNEF models are not supported",
            "remove graph.quant to compute in floats, or convert the model to TFLite",
        )
    try:
        return NnefSource(file, parse(_text(file)))
    except NnefSyntaxError as fault:
        raise _no_model(file, str(fault)) from None


def _text(file: Path) -> str:
    """Return the text of a description; MaceError if it cannot be read or is not ASCII."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(file.name, f"cannot be read: {error.strerror}", "check the path") from None
    if len(data) > MAX_TEXT_BYTES:
        raise _no_model(file, f"it has {len(data)} bytes, more than {MAX_TEXT_BYTES}")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise _no_model(file, "it holds bytes that are no ASCII text") from None


def _no_model(file: Path, reason: str) -> MaceError:
    return MaceError(file.name, f"is no NNEF description: {reason}", "export the model again")
