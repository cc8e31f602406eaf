"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mace_core.errors import MaceError


def write(path: Path, content: str | bytes) -> None:
    """Write a file by way of a temporary one beside it; MaceError where the disk does not take it."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o644)  # a build's product is for everyone to read
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise MaceError(path, f"cannot be written: {error.strerror}", "free some disk space or choose another folder") from error


def write_all(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder; one that has its content already is left alone."""
    for name, content in files.items():
        path = folder / name
        data = content.encode() if isinstance(content, str) else content
        if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
            write(path, data)
