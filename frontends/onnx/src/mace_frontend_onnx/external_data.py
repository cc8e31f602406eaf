"""Finds the files beside a model that hold its weights, without reading the weights inside it."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

from mace_core.errors import MaceError

LOCATION_KEY = b"location"
"""The key in every reference to another file (onnx.proto, TensorProto.external_data)."""


def data_files(path: Path) -> tuple[Path, ...]:
    """Return the existing files that hold a model's weights.

    Returns none for a file that is no model; loading it reports that.
    """
    try:
        with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            # Build systems call this for every build: a search of the bytes spares most of them the parsing,
            # and the import of onnx.
            if data.find(LOCATION_KEY) < 0:
                return ()
        from mace_frontend_onnx.model_file import read

        locations = read(path).locations
    except (OSError, ValueError, MaceError):
        return ()
    files = (path.parent / name for name in locations)
    return tuple(file for file in files if file.is_file())
