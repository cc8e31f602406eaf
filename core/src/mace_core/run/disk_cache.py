"""Keeps what takes long to make in the user's cache folder, under a key that names all that it depends on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mace_core.api import Content
from mace_core.cache import cache_folder, is_own, private_folder
from mace_core.errors import MaceError
from mace_core.run.files import write

MAX_BYTES = 2 << 30
"""Bytes that the files of one kind take; the ones that were used longest ago are removed beyond it."""


def read_cached(kind: str, key: str) -> Path | None:
    """Return the file that is cached under a key; None without one, or if another user may have written it.

    kind: the folder in the cache.  key: a file's plain name.  A reader that finds the file damaged writes it
    again.
    """
    folder = private_folder(cache_folder(kind))
    if folder is None:
        return None
    file = folder / key
    try:
        if file.is_symlink() or not file.is_file() or not is_own(file.lstat()):
            return None
        os.utime(file)
    except OSError:  # removed by another process in between, or a disk that is not for writing
        return None
    return file


def write_cached(kind: str, key: str, content: Content) -> None:
    """Keep content under a key.

    Nothing where the folder is not this user's own, or the disk does not take it.
    """
    folder = private_folder(cache_folder(kind))
    if folder is None:
        return
    # What is kept can be made again, so a full disk is no fault of the command.
    with suppress(MaceError, OSError):
        write(folder / key, content)
        _trim(folder)


def _trim(folder: Path) -> None:
    """Remove the files that were used longest ago, until the others fit the limit."""
    files = [(file, file.stat()) for file in folder.iterdir() if file.is_file()]
    files.sort(key=lambda pair: pair[1].st_mtime_ns, reverse=True)
    total = 0
    for file, state in files:
        if total + state.st_size > MAX_BYTES:
            file.unlink(missing_ok=True)
        else:
            total += state.st_size
