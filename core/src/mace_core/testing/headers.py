"""Precompiles the headers of compilers that take longer to read than the kernels which include them.

GCC 12 reads `immintrin.h` in 0.3 s, whatever the instruction set, and most kernels of a test in 0.1 s.
Every library that a test compiles would read it again for each level.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

SLOW = "immintrin.h"


def precompiled_headers(source: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the flags with which a compiler reads the slow header of a unit in its precompiled form.

    source: text of the unit.  command: the compiler with all flags that the unit is compiled with, because a
    precompiled header is only valid for the same flags.

    Returns no flags for a unit that does not name the header, and where the compiler cannot precompile it:
    that of another processor lacks it.
    """
    if f"#include <{SLOW}>" not in source:
        return ()
    header = _precompile(command)
    return ("-include", str(header)) if header else ()


@cache
def _precompile(command: tuple[str, ...]) -> Path | None:
    """Precompile the slow header; return the header to include, or None if the compiler fails."""
    folder = Path(tempfile.mkdtemp(dir=_temporary_folder().name))
    header = folder / "slow.h"
    header.write_text(f"#include <{SLOW}>\n", encoding="utf-8")
    # The name under which compilers look for the precompiled form of `slow.h`.
    words = [*command, "-x", "c-header", str(header), "-o", f"{header}.gch"]
    done = subprocess.run(words, capture_output=True, check=False)
    return None if done.returncode else header


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process for precompiled headers, which is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="mace-headers-")
