"""The files beside a model that hold its weights, told without reading those inside it."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

from mace_core.errors import MaceError

MARK = b"location"
"""What every note of data outside of the file holds; few other models do."""


def data_files(file: Path) -> tuple[Path, ...]:
    """The files that hold a model's weights, of those that are there.

    None for a file that is no model, which loading tells.
    """
    try:
        with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            if data.find(MARK) < 0:
                return ()
        from mace_frontend_onnx.source import read

        locations = read(file).locations
    except (OSError, ValueError, MaceError):
        return ()
    return tuple(path for name in locations if (path := file.parent / name).is_file())
