"""The driver's twenty files are part of each library of the tests: with ccache they are compiled once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CCACHE = "/usr/lib/ccache"
"""Where Debian's ccache has compilers; the folder need not exist."""


def choose_cache(folder: Path) -> Mapping[str, str]:
    """Return the environment in which compilers keep objects beside the folders of all tests of a process."""
    return {
        "PATH": f"{CCACHE}{os.pathsep}{os.environ['PATH']}",
        "CCACHE_DIR": str(folder.parent / "objects"),
        # Each test has a folder of its own, which objects with debug information would name.
        "CCACHE_NOHASHDIR": "1",
    }
