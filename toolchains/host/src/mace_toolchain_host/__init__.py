"""Compiles for the machine that builds, with its own C compiler."""

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

# cc comes first: on Unix systems it is the compiler that the administrator chose.
COMPILERS = ("cc", "gcc", "clang")
ARCHIVERS = ("ar", "llvm-ar")
COMPILER_REMEDY = "apt-get install gcc, or: pip install mace-toolchain-zig"


class Host(Toolchain):
    """The compiler that $CC names, or the first of cc, gcc and clang in PATH; $AR and ar likewise."""

    name = "host"
    abis: ClassVar = {"host": "this machine"}

    def missing(self, abi: str) -> str | None:
        """Return what to install; None if there are a compiler and an archiver."""
        if _command("CC", COMPILERS) is None:
            return f"{_explain_absence('CC', COMPILERS, 'C compiler')}: {COMPILER_REMEDY}"
        if _command("AR", ARCHIVERS) is None:
            return f"{_explain_absence('AR', ARCHIVERS, 'archiver')}: apt-get install binutils"
        return None

    def compiler(self, abi: str) -> Compiler:
        """Return the installed compiler; MaceError if there is none."""
        # No -march=native: the library also runs on other machines with this kind of processor. What newer
        # processors have is used through the levels that a target chooses from at run time.
        cc, ar = _command("CC", COMPILERS), _command("AR", ARCHIVERS)
        if cc is None or ar is None:
            raise MaceError("toolchain host", "is not ready", self.missing(abi) or "")
        return Compiler(cc, ar, libc=_libc())

    def runner(self, abi: str) -> Runner:
        """Return the runner of programs on this machine."""
        return Native()


def _command(variable: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the command of the environment variable, or the first of the names that is in PATH.

    None if there is none.  A variable that is set but names nothing is an error of the user: other names are
    not tried then.
    """
    value = os.environ.get(variable, "").strip()
    if value:
        words = tuple(shlex.split(value))  # CC may have arguments, such as "ccache gcc -m64"
        return words if shutil.which(words[0]) else None
    return next(((name,) for name in names if shutil.which(name)), None)


def _explain_absence(variable: str, names: tuple[str, ...], tool: str) -> str:
    value = os.environ.get(variable, "").strip()
    if value:
        return f"{variable}={value} is not in PATH"
    return f"no {tool} in PATH ({', '.join(names)}), and {variable} is not set"


def _libc() -> str:
    """Describe this machine's C library; Python names only glibc."""
    name, version = platform.libc_ver()
    return f"{name} {version} of this machine" if name else "the C library of this machine"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer this machine's compiler."""
    return (Host(),)
