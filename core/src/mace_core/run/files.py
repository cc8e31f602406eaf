"""Writes files that are whole or not there, and none outside of the folder that they belong to."""

from __future__ import annotations

import errno
import filecmp
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np

from mace_core.api import Content, Stream
from mace_core.deployment.names import DEVICES
from mace_core.emit.text import shown
from mace_core.errors import MaceError
from mace_core.ir import Array

MAX_NAME = 230
"""Bytes of a file's name; the systems' limit is 255, and a file is written under a longer name first."""

MAX_STEM = 100
"""Characters of a file's name that is made of a tensor's."""

FOREIGN = frozenset((".git", ".hg", ".svn", ".bzr"))
"""Folders whose files other programs execute."""


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
            # A link is replaced and not followed: what it leads to belongs to somebody else.
            if path.is_symlink() or not path.is_file() or not filecmp.cmp(temporary, path, shallow=False):
                os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        remedy = "choose shorter names" if error.errno == errno.ENAMETOOLONG else "free some disk space or choose another folder"
        raise MaceError(_shortened(path), f"cannot be written: {error.strerror}", remedy) from error


def write_all(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files into a folder, by their paths in it, with `/` between folders.

    Whatever a target or a project writes comes through here. MaceError, before anything is written, for a path that is absolute, leads
    out of the folder (by `..` or by a symbolic link), has signs that not every file system takes, is too long, or is there twice where
    the case of letters does not count.
    """
    places = {name: _inside(folder, name) for name in files}
    seen: dict[str, str] = {}
    for name in files:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise MaceError(folder, f"{shown(other)} and {shown(name)} are one file on some systems", "give them different names")
    for name, content in files.items():
        write(places[name], content)


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Return a file name without suffix for each name: letters, digits and `.`, `_`, `-`, all different in any case of letters."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:MAX_STEM].strip(".") or "_"
        stem = f"_{stem}" if stem.partition(".")[0].lower() in DEVICES or stem.startswith("-") else stem
        number, free = 1, stem
        while free.lower() in taken:
            number += 1
            free = f"{stem}_{number}"
        taken.add(free.lower())
        found[name] = free
    return found


def _inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder; MaceError where it is not surely there."""
    problem = _unsuitable(name)
    if problem is None:
        path = folder / name
        try:
            root, parent = folder.resolve(), path.parent.resolve()
        except (OSError, RuntimeError):  # a loop of links
            problem = "lies behind links that lead nowhere"
        else:
            problem = None if parent.is_relative_to(root) else "lies outside: a symbolic link leads there"
    if problem:
        raise MaceError(_shortened(folder), f"file {shown(name)} {problem}", "write only plain names of files below the folder")
    return path


def _unsuitable(name: str) -> str | None:
    """Why a relative path cannot be written everywhere; None where it can."""
    parts = name.split("/")
    if not name or PurePosixPath(name).is_absolute():
        return "is not a path in the folder"
    if any(part in ("", ".", "..") for part in parts):
        return "is not a path in the folder"
    if not name.isprintable() or any(sign in name for sign in '\\:*?"<>|'):
        return "has signs that not every file system takes"
    if any(len(part.encode()) > MAX_NAME for part in parts):
        return f"is longer than {MAX_NAME} bytes"
    if any(part.endswith((".", " ")) or part.partition(".")[0].lower() in DEVICES for part in parts):
        return "is a name that Windows keeps for itself"
    return "belongs to another program" if any(part.lower() in FOREIGN for part in parts) else None


def _shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}..."


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
