"""Cross-compiles for Linux, Android, Hexagon DSPs and bare machines with zig's clang, a pip package."""

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
from mace_toolchain_zig.abis import ABIS, CODE_FLAGS, NATIVE, ZigAbi
from mace_toolchain_zig.bionic import write_stubs

SLOW = (
    "zig builds what it links against once for each ABI and set of -mcpu flags, and keeps it; "
    "a whole C library takes one to ten minutes"
)
"""Why the first link for an ABI takes long: the package has the sources of C libraries, no binaries."""


class Zig(Toolchain):
    """The compiler in the `ziglang` package; used where no toolchain made for the ABI is ready."""

    name = "zig"
    last = True
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"host": "this machine"} | {name: abi.description for name, abi in ABIS.items()}
    )

    def missing(self, abi: str) -> str | None:
        """Return how to install zig; None if it is installed, for it can compile for every ABI here."""
        return None if find_spec("ziglang") else "the package ziglang is not installed: pip install ziglang"

    def compiler(self, abi: str) -> Compiler:
        """Return the compiler of an ABI; MaceError if the stubs for Android cannot be written."""
        zig_abi = _find_abi(abi)
        stubs = write_stubs(abi, zig_abi.processor) if zig_abi.bionic else ()
        return Compiler(
            cc=_zig_command("cc"),
            ar=_zig_command("ar"),
            flags=(*zig_abi.flags, *CODE_FLAGS),
            shared=(*zig_abi.shared, *stubs),
            program=zig_abi.program,
            libs=zig_abi.libs,
            libc=zig_abi.libc,
            hosted=zig_abi.hosted,
            slow=SLOW if zig_abi.hosted else "",
        )

    def runner(self, abi: str) -> Runner | None:
        """Return this machine or QEMU as the runner; None where neither executes programs of the ABI."""
        if abi == "host":
            return Native()
        # Programs are static and use musl, also those for Android, so that Linux and QEMU run them.
        can_run = ABIS[abi].hosted and ABIS[abi].has_runner
        return linux(ABIS[abi].processor) if can_run else None


def _zig_command(tool: str) -> tuple[str, ...]:
    # -P: a ziglang.py or struct.py in the folder where the compiler runs must not be imported.
    return (sys.executable, "-P", "-m", "ziglang", tool)


def _find_abi(name: str) -> ZigAbi:
    """Return the entry of an ABI; for "host" that of this machine's processor, if there is one."""
    if name != "host":
        return ABIS[name]
    # The entries for Linux link against glibc; elsewhere zig finds out by itself what is there.
    has_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    if not has_glibc:
        return NATIVE
    this_processor = processor()
    linux_abis = (abi for abi in ABIS.values() if not abi.bionic)
    return next((abi for abi in linux_abis if abi.processor == this_processor), NATIVE)


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer zig."""
    return (Zig(),)
