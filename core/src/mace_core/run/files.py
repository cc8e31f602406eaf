"""Writes files atomically, and none outside of the folder that they belong to."""

from __future__ import annotations

import errno
import filecmp
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile

import numpy as np

from mace_core.api import Content, Stream
from mace_core.deployment.faults import shorten
from mace_core.deployment.names import DEVICES
from mace_core.emit.text import quote_name
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor

NPY_MAGIC = b"\x93NUMPY"


UNREADABLE = (OSError, ValueError, EOFError, SyntaxError, BadZipFile, zlib.error)
"""Exceptions of numpy and zipfile for files that are no arrays."""

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
        remedy = (
            "choose shorter names"
            if error.errno == errno.ENAMETOOLONG
            else "free some disk space or choose another folder"
        )
        raise MaceError(_shorten(path), f"cannot be written: {error.strerror}", remedy) from error


def write_all(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files into a folder, by their paths in it, with `/` between folders.

    Whatever a target or a project writes comes through here. MaceError, before anything is written, for a
    path that is absolute, leads out of the folder (by `..` or by a symbolic link), has signs that not every
    file system takes, is too long, or is there twice where the case of letters does not count.
    """
    places = {name: _resolve_inside(folder, name) for name in files}
    seen: dict[str, str] = {}
    for name in files:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise MaceError(
                folder,
                f"{quote_name(other)} and {quote_name(name)} are one file on some systems",
                "give them different names",
            )
    for name, content in files.items():
        write(places[name], content)


def make_folder(folder: Path) -> None:
    """Make a folder for files that long work will write; MaceError before the work if it takes none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The only way to know: permissions, the mount and the disk decide together.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"no file can be written there: {error.strerror}"
        raise MaceError(_shorten(folder), problem, "name a folder that you may write to") from error


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Return a file name without suffix for each name: plain characters, unique even if case is ignored."""
    stems: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:MAX_STEM].strip(".") or "_"
        stem = f"_{stem}" if stem.partition(".")[0].lower() in DEVICES or stem.startswith("-") else stem
        number, free = 1, stem
        while free.lower() in taken:
            number += 1
            free = f"{stem}_{number}"
        taken.add(free.lower())
        stems[name] = free
    return stems


def _resolve_inside(folder: Path, name: str) -> Path:
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
        raise MaceError(
            _shorten(folder),
            f"file {quote_name(name)} {problem}",
            "write only plain names of files below the folder",
        )
    return path


def _unsuitable(name: str) -> str | None:
    """Return why a relative path cannot be written on every system; None if it can."""
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


def _shorten(path: Path) -> str:
    text = str(path)
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}..."


def _pieces(content: Content) -> Iterable[bytes]:
    if isinstance(content, Stream):
        return content.make()
    return (content.encode() if isinstance(content, str) else content,)


REMEDY = "give a .npy, .npz or raw file of numbers"


def read_array(path: str, tensor: Tensor, names: Sequence[str] = ()) -> Array:
    """Read one tensor from a .npy file, from an .npz under its name, or from a raw file of its elements.

    names: other names that the tensor may have in an .npz.

    Pickled objects are refused. Raises MaceError for what cannot be read, and for an .npz without the tensor.
    """
    if path.lower().endswith(".npz"):
        return _member(path, (tensor.name, *names))
    if path.lower().endswith((".npy", ".pkl", ".pickle")):
        return read_samples(path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if data.startswith(NPY_MAGIC):
        return read_samples(path)
    if not data or not tensor.bytes or len(data) % tensor.bytes:
        problem = f"has {len(data)} bytes; raw data of {tensor.name!r} has {tensor.bytes} for each sample"
        raise MaceError(path, problem, REMEDY)
    return np.frombuffer(data, tensor.dtype.numpy.newbyteorder("<")).reshape(-1, *tensor.shape)


def read_samples(path: str) -> Array:
    """The array in a .npy file, or the only one in an .npz; pickled objects are refused."""
    try:
        with open(path, "rb") as file:  # numpy leaves a file open that is no archive
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            names = list(loaded)
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    if len(names) == 1:
        return _member(path, names)
    raise MaceError(path, f"holds {len(names)} arrays", "give a .npy file, or an .npz with one array")


def _member(path: str, accepted: Sequence[str]) -> Array:
    """The array of the first of the names that an .npz file has, or its only one."""
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            names = list(archive)
            name = next((n for n in accepted if n in names), names[0] if len(names) == 1 else None)
            if name is None:
                listed = ", ".join(names) or "nothing"
                raise MaceError(
                    path,
                    f"has no array {accepted[0]!r}; it holds {listed}",
                    "save it with the names of the tensors",
                )
            array: Array = archive[name]
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    return array


def _unreadable(path: str, error: Exception) -> MaceError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return MaceError(shorten(path, 200), f"cannot be read as an array: {reason}", REMEDY)
