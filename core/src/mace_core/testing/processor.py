"""Tells which instruction-set levels the processor of this machine has, so that tests run only those."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mace_core.emit.render import render
from mace_core.levels import Level
from mace_core.testing.compiled import host


def levels_here(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Return those of the levels that this processor has, in their order."""
    return tuple(
        level for level in levels if not level.available or _is_true(_functions(level), level.available)
    )


def _functions(level: Level) -> str:
    """Return the C functions that the condition of a level calls."""
    return str(render(level.probe)) if level.probe else ""


@cache
def _is_true(functions: str, expression: str) -> bool:
    """Tell what the C expression of a level says here; it does not compile for processors of another kind."""
    source = (
        f"#include <stdint.h>\n{functions}\nint answer(void);\nint answer(void) {{ return {expression}; }}\n"
    )
    compiler = host()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "answer.c").write_text(source, encoding="utf-8")
        words = [*compiler.cc, *compiler.flags, *compiler.shared, "-o", "answer.so", "answer.c"]
        if subprocess.run(words, cwd=path, check=False, capture_output=True).returncode:
            return False
        return bool(ctypes.CDLL(str(path / "answer.so")).answer())
