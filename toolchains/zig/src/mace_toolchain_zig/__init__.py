"""Zig's clang: cross compilation for Linux and Android from one pip package, with every libc it needs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Runner, Toolchain
from mace_core.hookspecs import hookimpl
from mace_core.run.runners import Native, linux, processor
from mace_toolchain_zig.abis import ABIS, CODE, NATIVE, Abi
from mace_toolchain_zig.bionic import stubs

SLOW = "zig builds what it links against once for each ABI, and keeps it; a whole C library takes a minute or more"


class Zig(Toolchain):
    """The compiler in the `ziglang` package; taken where nothing made for the ABI alone is ready."""

    name = "zig"
    last = True
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"host": "this machine"} | {n: a.words for n, a in ABIS.items()}
    )

    def missing(self, abi: str) -> str | None:  # zig has all
        """None if the ziglang package is installed."""
        return None if find_spec("ziglang") else "the package ziglang is not installed: pip install ziglang"

    def compiler(self, abi: str) -> Compiler:
        """Objects that need no libc in particular; shared libraries for the ABI's own libc.

        Static programs.
        """
        found = _abi(abi)
        cc, ar = _zig("cc"), _zig("ar")
        flags = (*found.flags, *CODE)
        shared = found.shared
        if found.bionic:
            shared = (*shared, *stubs(abi, found.processor))
        return Compiler(
            cc,
            ar,
            flags,
            shared,
            found.program,
            found.libs,
            found.libc,
            found.hosted,
            SLOW if found.hosted else "",
        )

    def runner(self, abi: str) -> Runner | None:
        """Give this machine, or QEMU: programs are static, also those for Android.

        None where there is no operating system.
        """
        if abi == "host":
            return Native()
        return linux(ABIS[abi].processor) if ABIS[abi].hosted else None


def _zig(tool: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "ziglang", tool)  # -P: no module of the folder where it runs


def _abi(name: str) -> Abi:
    """Find the ABI's entry.

    A Linux machine with glibc is the ABI of its processor, any other is left to zig to find out.
    """
    if name != "host":
        return ABIS[name]
    glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return next((a for a in ABIS.values() if glibc and not a.bionic and a.processor == processor()), NATIVE)


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer zig."""
    return (Zig(),)
