"""A stand-in for the Hexagon SDK: its folders and names, with zig's clang behind them."""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mace_core.testing.requirements import require
from mace_toolchain_zig import Zig

# zig takes the processor by another flag, and is given that of its own ABI.
CLANG = """#!/bin/sh
for word do
  shift
  case "$word" in -mv66|-mv68|-mv69|-mv73|-mhvx-length=128b|-G0) ;; *) set -- "$@" "$word" ;; esac
done
exec {command} "$@"
"""
ARCHIVER = """#!/bin/sh
exec {command} "$@"
"""


def make_sdk(folder: Path, versions: Sequence[str] = ("8.7.06",)) -> Path:
    """Write an SDK with these versions of its compiler; skip the test without zig."""
    abi = "hexagon-v66"
    require(Zig().missing(abi))
    compiler = Zig().compiler(abi)
    for version in versions:
        programs = folder / "tools/HEXAGON_Tools" / version / "Tools/bin"
        programs.mkdir(parents=True)
        _write(programs / "hexagon-clang", CLANG, [*compiler.cc, *compiler.flags])
        _write(programs / "hexagon-llvm-ar", ARCHIVER, [sys.executable, "-P", "-m", "ziglang", "ar"])
    return folder


def set_sdk(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Set the environment of an SDK, and nothing else of one."""
    patch.setenv("HEXAGON_SDK_ROOT", str(folder))
    patch.delenv("DEFAULT_HEXAGON_TOOLS_ROOT", raising=False)


def _write(program: Path, text: str, command: Sequence[str]) -> None:
    program.write_text(text.format(command=shlex.join(command)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
