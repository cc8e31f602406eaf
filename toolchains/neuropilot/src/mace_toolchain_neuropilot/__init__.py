"""Compiles for Genio boards under Yocto, with the SDK whose environment is set."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl
from mace_core.run.runners import Qemu

ABI = "arm64"
PROCESSOR = "aarch64"
VARIABLES = ("CC", "AR", "TARGET_PREFIX", "SDKTARGETSYSROOT")
"""What the script environment-setup-* of a Yocto SDK sets, and what is read of it."""
SCRIPT = "environment-setup-armv8a-poky-linux"
TAKEN = ("--sysroot=", "-mbranch-protection=", "-fstack-protector")
"""Beginnings of the flags in CC that the system needs.

Others name one processor (-mcpu, -march), which would take older ones from the library, or are for the build
to decide: optimization, warnings, and _FORTIFY_SOURCE, which warns without optimization.
"""
EVERY_PROCESSOR = "-mcpu=generic"
"""The instructions that all processors of the ABI have; levels of a library state others by -mcpu."""


@dataclass(frozen=True)
class YoctoSdk:
    """What the environment tells of an SDK.

    cc, ar: the programs.  flags: of CC, those that the system needs.  sysroot: the system image.
    """

    cc: str
    ar: str
    flags: tuple[str, ...]
    sysroot: Path


class SysrootQemu(Qemu):
    """Executes a program that is linked dynamically, with the libraries of a system image."""

    def __init__(self, processor: str, sysroot: Path) -> None:
        super().__init__(processor)
        self.sysroot = sysroot

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Return the emulator, the system image and the program; MaceError if the emulator is missing."""
        emulator, *words = super().command(program, arguments)
        return [emulator, "-L", str(self.sysroot), *words]


class Neuropilot(Toolchain):
    """The GCC of a Yocto SDK for MediaTek's Genio boards."""

    name = "neuropilot"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {ABI: "Linux on 64-bit ARM: the Yocto image of a Genio board"}
    )

    def missing(self, abi: str) -> str | None:
        """Return what to source or set; None if the environment is that of a Yocto SDK for such a board."""
        if absent := [name for name in VARIABLES if not os.environ.get(name, "").strip()]:
            names = ", ".join(absent)
            return (
                f"no Yocto SDK: {names} not set; install the SDK of the board's image and source its {SCRIPT}"
            )
        prefix = os.environ["TARGET_PREFIX"]
        if not prefix.startswith(f"{PROCESSOR}-") or not prefix.endswith("-linux-"):
            return f"TARGET_PREFIX={prefix} is no SDK for 64-bit ARM: source the {SCRIPT} of such a board"
        try:
            return _find_fault(_read_sdk(), prefix)
        except MaceError as error:
            return str(error)

    def compiler(self, abi: str) -> Compiler:
        """Return the compiler of the SDK; MaceError if its environment is not set."""
        if reason := self.missing(abi):
            raise MaceError("toolchain neuropilot", f"is not ready for {abi}", reason)
        sdk = _read_sdk()
        return Compiler(
            cc=(sdk.cc,),
            ar=(sdk.ar,),
            flags=(*sdk.flags, EVERY_PROCESSOR),
            libc=f"the C library of the Yocto SDK {sdk.sysroot.name}; programs: dynamic",
        )

    def runner(self, abi: str) -> Runner:
        """Return what runs programs here: QEMU with the SDK's system image."""
        return SysrootQemu(PROCESSOR, Path(os.environ.get("SDKTARGETSYSROOT", "/")))


def _read_sdk() -> YoctoSdk:
    """Return the SDK that the environment describes; MaceError for a CC that is no command line."""
    try:
        cc, *flags = shlex.split(os.environ["CC"])
        ar, *_ = shlex.split(os.environ["AR"])
    except ValueError as error:
        raise MaceError("CC or AR", f"is no command line: {error}", f"source the SDK's {SCRIPT}") from None
    sysroot = Path(os.environ["SDKTARGETSYSROOT"])
    taken = tuple(flag for flag in flags if flag.startswith(TAKEN))
    if not any(flag.startswith("--sysroot=") for flag in taken):
        taken = (f"--sysroot={sysroot}", *taken)
    return YoctoSdk(cc, ar, taken, sysroot)


def _find_fault(sdk: YoctoSdk, prefix: str) -> str | None:
    """Return what is wrong with the programs and the system image of an SDK; None if they are there."""
    for name, tool in (("CC", sdk.cc), ("AR", sdk.ar)):
        if not Path(tool).name.startswith(prefix):
            return f"{name} is {tool!r}, not {prefix}...: source the SDK's {SCRIPT} again"
        if shutil.which(tool) is None:
            return f"{tool} is not in PATH: source the SDK's {SCRIPT}, which sets PATH too"
    if not sdk.sysroot.is_dir():
        return f"SDKTARGETSYSROOT={sdk.sysroot} is no folder: install the SDK again and source its {SCRIPT}"
    return None


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer the compiler of the SDK."""
    return (Neuropilot(),)
