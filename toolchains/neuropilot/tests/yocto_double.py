"""A stand-in for a Yocto SDK: its environment, with Debian's cross compiler behind the SDK's names."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from mace_core.testing.requirements import require

TRIPLE = "aarch64-linux-gnu"
SYSROOT = Path("/usr") / TRIPLE
FLAGS = "-mcpu=cortex-a78.cortex-a55+crypto -mbranch-protection=standard -fstack-protector-strong -O2 -D_FORTIFY_SOURCE=2 -Wformat"
# Debian's compiler has its system image built in, and finds nothing under another.
WRAPPER = """#!/bin/sh
for word do
  shift
  case "$word" in --sysroot=*) ;; *) set -- "$@" "$word" ;; esac
done
exec {tool} "$@"
"""


def set_environment(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Set what a sourced environment-setup script would; skip the test without Debian's compiler."""
    gcc, ar = shutil.which(f"{TRIPLE}-gcc"), shutil.which(f"{TRIPLE}-ar")
    require(None if gcc and ar else f"{TRIPLE}-gcc is not in PATH: apt-get install gcc-{TRIPLE}")
    for name, tool in (("gcc", gcc), ("ar", ar)):
        program = folder / f"aarch64-poky-linux-{name}"
        program.write_text(WRAPPER.format(tool=tool))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patch.setenv("PATH", str(folder), prepend=":")
    patch.setenv("TARGET_PREFIX", "aarch64-poky-linux-")
    patch.setenv("SDKTARGETSYSROOT", str(SYSROOT))
    patch.setenv("CC", f"aarch64-poky-linux-gcc {FLAGS} --sysroot={SYSROOT}")
    patch.setenv("AR", "aarch64-poky-linux-ar")
