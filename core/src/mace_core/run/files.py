"""Files that are whole or not there."""

from __future__ import annotations

import filecmp
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from mace_core.api import Content, Stream
from mace_core.errors import MaceError
from mace_core.ir import Array


def write(path: Path, content: Content) -> None:
    """Write a file by way of a temporary one beside it; one that has the content already keeps its date.

    Raises MaceError where the disk does not take it, and leaves what was there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(_pieces(content))
            os.chmod(temporary, 0o644)  # a build's product is for everyone to read
            if not path.is_file() or not filecmp.cmp(temporary, path, shallow=False):
                os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        raise MaceError(path, f"cannot be written: {error.strerror}", "free some disk space or choose another folder") from error


def write_all(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files into a folder."""
    for name, content in files.items():
        write(folder / name, content)


def _pieces(content: Content) -> Iterable[bytes]:
    if isinstance(content, Stream):
        return content.make()
    return (content.encode() if isinstance(content, str) else content,)


def read_samples(path: str) -> Array:
    """The array in a .npy file; pickled objects are refused."""
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise MaceError(path, f"cannot be read as an array: {error}", "give a .npy file of numbers") from None
    return array
