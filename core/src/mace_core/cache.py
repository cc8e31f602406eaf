"""Finds the user's cache folder, for what can be made or downloaded again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

CACHE = "MACE_CACHE"
"""Environment variable: the folder, instead of `mace` in the user's cache folder."""


def cache_folder(kind: str) -> Path:
    """Return the cache folder for one kind of files.

    It follows the XDG base directory specification unless the variable MACE_CACHE is set.
    """
    if folder := os.environ.get(CACHE):
        return Path(folder).absolute() / kind
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~"), ".cache")) / "mace" / kind


def private_folder(folder: Path) -> Path | None:
    """Create the folder if needed and return it; None if others than this user and root can write to it.

    Cached files are trusted, for example executed. All folders above are checked too, because who may write
    to one of them can replace everything below.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = folder.resolve(strict=True)
        parents = [folder_above.stat() for folder_above in resolved.parents]
        is_safe = is_own(resolved.stat()) and all(is_own(s) or _is_sticky(s) for s in parents)
    except OSError:
        return None
    return resolved if is_safe else None


def is_own(status: os.stat_result) -> bool:
    """Tell whether only this user and root can write there; False on systems without such users."""
    return hasattr(os, "geteuid") and status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022


def _is_sticky(status: os.stat_result) -> bool:
    """Tell whether it is a folder such as /tmp: everybody may create files, only their owners rename them."""
    return status.st_uid == 0 and bool(status.st_mode & stat.S_ISVTX)
