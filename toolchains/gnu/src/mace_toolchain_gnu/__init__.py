"""Debian's GCC cross compilers for Linux on ARM."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl
from mace_core.run.runners import linux


@dataclass(frozen=True)
class Abi:
    """What an ABI means to Debian and to GCC.

    words: what it is.  triple: the prefix of its tools, and the end of its package's name.
    processor: as Linux names it.  flags: what every processor of the ABI has.  link: what follows them at a
    link.
    """

    words: str
    triple: str
    processor: str
    flags: tuple[str, ...]
    link: tuple[str, ...] = ()


# NEON of ARMv7 takes denormal numbers for zero, so GCC computes vectors of floats one by one unless this
# allows it to use NEON. Of all else that it allows, only this is wanted; nothing may be reassociated.
NEON_FLOATS = (
    "-funsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fsigned-zeros",
    "-ftrapping-math",
)
KEEP_DENORMALS = ("-fno-unsafe-math-optimizations",)
"""At a link the flag above would add start-up code that lets the whole process take denormal numbers for zero."""

ABIS: Mapping[str, Abi] = MappingProxyType(
    {
        "arm64": Abi("Linux on 64-bit ARM", "aarch64-linux-gnu", "aarch64", ("-march=armv8-a",)),
        "armhf": Abi(
            "Linux on 32-bit ARM: ARMv7 with NEON, hard-float",
            "arm-linux-gnueabihf",
            "arm",
            ("-march=armv7-a", "-mfpu=neon", "-mfloat-abi=hard", *NEON_FLOATS),
            KEEP_DENORMALS,
        ),
    }
)


class Gnu(Toolchain):
    """GCC as Debian and Ubuntu package it for other processors; its C library is that of the distribution."""

    name = "gnu"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType({name: abi.words for name, abi in ABIS.items()})

    def missing(self, abi: str) -> str | None:
        """None if the compiler is in PATH."""
        triple = ABIS[abi].triple
        if shutil.which(f"{triple}-gcc") and shutil.which(f"{triple}-ar"):
            return None
        return f"{triple}-gcc is not in PATH: apt-get install gcc-{triple}"

    def compiler(self, abi: str) -> Compiler:
        """Shared libraries for the distribution's glibc, static programs.

        MaceError if there is no compiler.
        """
        if reason := self.missing(abi):
            raise MaceError("toolchain gnu", f"is not ready for {abi}", reason)
        found = ABIS[abi]
        gcc = f"{found.triple}-gcc"
        return Compiler(
            cc=(gcc,),
            ar=(f"{found.triple}-ar",),
            flags=found.flags,
            shared=("-shared", *found.link),
            program=("-static", *found.link),
            libc=_libc(gcc),
        )

    def runner(self, abi: str) -> Runner:
        """Give this machine where it can, else QEMU."""
        return linux(ABIS[abi].processor)


@cache
def _libc(gcc: str) -> str:
    """Describe the C library that a compiler links against, by the macros of its features.h."""
    command = [gcc, "-E", "-dM", "-include", "features.h", "-x", "c", "-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    version = [m[1] for m in re.finditer(r"^#define __GLIBC(?:_MINOR)?__ (\d+)$", done.stdout, re.M)]
    # The mathematics functions have newer versions than 2.17, and a link takes the newest that it sees.
    name = f"glibc {'.'.join(version)}" if version else "glibc"
    return f"{name} or what its symbols' versions ask for (toolchain=zig asks for 2.17); programs: static"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer GCC's cross compilers."""
    return (Gnu(),)
