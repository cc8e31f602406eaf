"""Compiles for Linux on ARM with the GCC cross compilers of Debian and Ubuntu."""

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
class DebianAbi:
    """What Debian and GCC call an ABI.

    description: what it is, for lists of ABIs.  triple: the prefix of the tools, and the end of the package's
    name.  processor: its name in Linux and QEMU.  flags: for every compilation and link; they name the
    instructions that every processor of the ABI has.  link_flags: further flags for links.
    """

    description: str
    triple: str
    processor: str
    flags: tuple[str, ...]
    link_flags: tuple[str, ...] = ()


# NEON of ARMv7 flushes denormal numbers to zero, so GCC vectorizes no loop over floats unless
# -funsafe-math-optimizations allows it (GCC manual, "ARM Options", -mfpu). That flag also allows to reorder
# sums, to multiply by reciprocals and to ignore the sign of zero and traps; each of these would change
# results, so the flags after it forbid them again.
NEON_FLOATS = (
    "-funsafe-math-optimizations",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fsigned-zeros",
    "-ftrapping-math",
)
# At a link, -funsafe-math-optimizations adds crtfastmath.o, whose start-up code sets the whole process to
# flush denormals: the application's other code would compute other results once the library is loaded.
KEEP_DENORMALS = ("-fno-unsafe-math-optimizations",)

ABIS: Mapping[str, DebianAbi] = MappingProxyType(
    {
        "arm64": DebianAbi("Linux on 64-bit ARM", "aarch64-linux-gnu", "aarch64", ("-mcpu=generic",)),
        "armhf": DebianAbi(
            "Linux on 32-bit ARM: ARMv7 with NEON, hard-float",
            "arm-linux-gnueabihf",
            "arm",
            ("-march=armv7-a", "-mfpu=neon", "-mfloat-abi=hard", *NEON_FLOATS),
            KEEP_DENORMALS,
        ),
    }
)


class Gnu(Toolchain):
    """GCC as Debian and Ubuntu package it for other processors, with the distribution's C library."""

    name = "gnu"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: abi.description for name, abi in ABIS.items()}
    )

    def missing(self, abi: str) -> str | None:
        """Return how to install the compiler; None if it is in PATH."""
        triple = ABIS[abi].triple
        if shutil.which(f"{triple}-gcc") and shutil.which(f"{triple}-ar"):
            return None
        return f"{triple}-gcc is not in PATH: apt-get install gcc-{triple}"

    def compiler(self, abi: str) -> Compiler:
        """Return the compiler of an ABI; MaceError if it is not installed."""
        if reason := self.missing(abi):
            raise MaceError("toolchain gnu", f"is not ready for {abi}", reason)
        debian_abi = ABIS[abi]
        gcc = f"{debian_abi.triple}-gcc"
        return Compiler(
            cc=(gcc,),
            ar=(f"{debian_abi.triple}-ar",),
            flags=debian_abi.flags,
            shared=("-shared", *debian_abi.link_flags),
            # Static, so that QEMU runs a program without the other processor's libraries on this machine.
            program=("-static", *debian_abi.link_flags),
            libc=_libc(gcc),
        )

    def runner(self, abi: str) -> Runner:
        """Return what runs programs: this machine if it has such a processor, else QEMU."""
        return linux(ABIS[abi].processor)


@cache
def _libc(gcc: str) -> str:
    """Describe the C library that a compiler links against, from the macros of its features.h."""
    command = [gcc, "-E", "-dM", "-include", "features.h", "-x", "c", "-"]
    process = subprocess.run(  # noqa: S603
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    version = [m[1] for m in re.finditer(r"^#define __GLIBC(?:_MINOR)?__ (\d+)$", process.stdout, re.M)]
    # glibc keeps several versions of a function such as expf, and a link takes the newest that it sees: what
    # a library asks for depends on the functions that it calls and is at most this version.
    name = f"glibc {'.'.join(version)}" if version else "glibc"
    return f"{name} or what its symbols' versions ask for (toolchain=zig asks for 2.17); programs: static"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer the GCC cross compilers."""
    return (Gnu(),)
