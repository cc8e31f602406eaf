"""The C compiler of the machine that builds."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Iterable
from typing import ClassVar

from mace_core.api import Compiler, Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl
from mace_core.run.runners import Native

COMPILERS = ("cc", "gcc", "clang")
ARCHIVERS = ("ar", "llvm-ar")
REMEDY = "apt-get install gcc, or: pip install mace-toolchain-zig"


class Host(Toolchain):
    """The compiler that $CC names, or the first of cc, gcc and clang; $AR likewise."""

    name = "host"
    abis: ClassVar = {"host": "this machine"}

    def missing(self, abi: str) -> str | None:  # there is one
        """None if a compiler and an archiver are there."""
        if _command("CC", COMPILERS) is None:
            return f"{_searched('CC', COMPILERS, 'C compiler')}: {REMEDY}"
        if _command("AR", ARCHIVERS) is None:
            return f"{_searched('AR', ARCHIVERS, 'archiver')}: apt-get install binutils"
        return None

    def compiler(self, abi: str) -> Compiler:
        """Take the compiler at hand, for what every processor of this kind can.

        MaceError if there is none.
        """
        cc, ar = _command("CC", COMPILERS), _command("AR", ARCHIVERS)
        if cc is None or ar is None:
            raise MaceError("toolchain host", "is not ready", self.missing(abi) or "")
        return Compiler(cc, ar, libc=_libc())

    def runner(self, abi: str) -> Runner:
        """Give this machine."""
        return Native()


def _command(variable: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Find the command in the environment variable, which may have arguments, or the first name in PATH."""
    given = os.environ.get(variable, "").strip()
    if given:
        words = tuple(shlex.split(given))
        return words if shutil.which(words[0]) else None
    return next(((name,) for name in names if shutil.which(name)), None)


def _searched(variable: str, names: tuple[str, ...], what: str) -> str:
    given = os.environ.get(variable, "").strip()
    return (
        f"{variable}={given} is not in PATH"
        if given
        else f"no {what} in PATH ({', '.join(names)}), and {variable} is not set"
    )


def _libc() -> str:
    name, version = platform.libc_ver()
    return f"{name} {version} of this machine" if name else "the C library of this machine"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer this machine's compiler."""
    return (Host(),)
