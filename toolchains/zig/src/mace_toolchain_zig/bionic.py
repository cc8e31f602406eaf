"""Stand-ins for Android's libraries, so that a link without an NDK can say which ones the loader shall bring.

Android's loader looks for a symbol only in the libraries that a library names as needed. To name one, a linker wants to see a file
with its soname; what that file defines does not matter, since symbols without a definition may remain.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mace_core.errors import MaceError

NAMES = ("libc.so", "libm.so")


def stubs(link: Sequence[str], abi: str) -> tuple[str, ...]:
    """Paths of empty shared libraries with Android's sonames, made once for an ABI.

    link: the command that links a shared library, up to its output.
    """
    folder = cache() / "bionic" / abi
    for name in NAMES:
        if not (folder / name).is_file():
            logging.getLogger("mace.zig").info("making a stand-in for Android's %s, once for %s", name, abi)
            _make(link, folder, name)
    return tuple(str(folder / name) for name in NAMES)


def cache() -> Path:
    """Where files are kept that can be made again: the user's cache folder."""
    given = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".cache") / "mace"


def _make(link: Sequence[str], folder: Path, name: str) -> None:
    """Link it beside its place and move it there, so that two builds at once do not meet half a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            empty, made = Path(scratch, "empty.c"), Path(scratch, name)
            empty.touch()
            command = [*link, f"-Wl,-soname,{name}", "-s", "-o", str(made), str(empty)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own
            if done.returncode:
                raise MaceError(name, f"zig cannot make a stand-in for it\n{done.stderr}", "set ANDROID_NDK_HOME to an NDK")
            made.replace(folder / name)
    except OSError as error:
        raise MaceError(folder, f"cannot be written: {error.strerror}", "set XDG_CACHE_HOME to a folder that can") from error
