"""The user's cache folder: what can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "MACE_CACHE"
"""Environment variable: the folder, instead of `mace` in the user's cache folder."""


def cache_folder(kind: str) -> Path:
    """The folder for one kind of things; it follows the XDG base directory specification unless MACE_CACHE names it."""
    if folder := os.environ.get(CACHE):
        return Path(folder).absolute() / kind
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~"), ".cache")) / "mace" / kind
