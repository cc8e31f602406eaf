"""The user's cache folder: what can be made or fetched again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

CACHE = "MACE_CACHE"
"""Environment variable: the folder, instead of `mace` in the user's cache folder."""


def cache_folder(kind: str) -> Path:
    """The folder for one kind of things.

    It follows the XDG base directory specification unless MACE_CACHE names it.
    """
    if folder := os.environ.get(CACHE):
        return Path(folder).absolute() / kind
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~"), ".cache")) / "mace" / kind


def private_folder(folder: Path) -> Path | None:
    """The folder, made where it is missing.

    None where anybody but this user and root could put something into it.

    What lies there is trusted, so all folders above count as well: who may write to one of them can put
    another in the place of this.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = folder.resolve(strict=True)
        safe = all(is_own(place.stat()) or _is_sticky(place.stat()) for place in whole.parents) and is_own(
            whole.stat()
        )
    except OSError:
        return None
    return whole if safe else None


def is_own(found: os.stat_result) -> bool:
    """Whether only this user and root can write there; never where the system has no such users."""
    return hasattr(os, "geteuid") and found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


def _is_sticky(found: os.stat_result) -> bool:
    """Whether it is a folder such as /tmp: all may make files there, and nobody but their owner can rename them."""
    return found.st_uid == 0 and bool(found.st_mode & stat.S_ISVTX)
