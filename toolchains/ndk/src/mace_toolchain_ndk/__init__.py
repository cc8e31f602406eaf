"""Android's own compiler, where an NDK is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl

VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
HOSTS: Mapping[str, str] = {"linux": "linux-x86_64", "darwin": "darwin-x86_64", "win32": "windows-x86_64"}
"""sys.platform -> the NDK's folder of tools; the one for macOS also holds code for Apple's processors."""

LEVEL = 21
"""Android 5.0, the first with 64 bits."""


@dataclass(frozen=True)
class Abi:
    """words: what it is.

    triple: as clang calls it.  flags: beyond what the triple implies.  shared: for a shared library.
    """

    words: str
    triple: str
    flags: tuple[str, ...] = ()
    shared: tuple[str, ...] = ("-shared",)


LARGE_PAGES = ("-shared", "-Wl,-z,max-page-size=16384")
"""Android 15 has devices with pages of 16 KiB; NDKs before r28 have to be told."""

ABIS: Mapping[str, Abi] = MappingProxyType(
    {
        "arm64-v8a": Abi("Android on 64-bit ARM", "aarch64-linux-android", shared=LARGE_PAGES),
        "x86_64": Abi(
            "Android on x86-64 (Linux on x86-64 is amd64)", "x86_64-linux-android", shared=LARGE_PAGES
        ),
        # Stacks are aligned since Android 7.
        "x86": Abi("Android on 32-bit x86", "i686-linux-android", ("-mstackrealign",)),
        "armeabi-v7a": Abi(
            "Android on 32-bit ARM: ARMv7 with NEON, softfp",
            "armv7a-linux-androideabi",
            ("-mfpu=neon", "-mfloat-abi=softfp"),
        ),
    }
)


class Ndk(Toolchain):
    """The clang of an Android NDK, r21 or newer, that ANDROID_NDK_HOME or ANDROID_NDK_ROOT names."""

    name = "ndk"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType({name: abi.words for name, abi in ABIS.items()})

    def missing(self, abi: str) -> str | None:  # an NDK has all
        """None if the NDK is there with its compiler for this machine."""
        variable, folder = _ndk()
        if folder is None:
            return f"no Android NDK: set {VARIABLES[0]} to one (https://developer.android.com/ndk/downloads)"
        clang = _tool(folder, "clang")
        if clang is None or not clang.is_file():
            where = clang or f"tools for {sys.platform}"
            return f"{variable}={folder} has no {where}: set {VARIABLES[0]} to the folder of an NDK, r21 or newer, for this machine"
        return None

    def compiler(self, abi: str) -> Compiler:
        """Everything for Android 5.0 and newer; MaceError if there is no NDK."""
        if reason := self.missing(abi):
            raise MaceError("toolchain ndk", f"is not ready for {abi}", reason)
        folder = _ndk()[1]
        assert folder is not None
        found = ABIS[abi]
        return Compiler(
            cc=(str(_tool(folder, "clang")),),
            ar=(str(_tool(folder, "llvm-ar")),),
            flags=(f"--target={found.triple}{LEVEL}", *found.flags),
            shared=found.shared,
            libc=f"bionic of the NDK, Android API level {LEVEL}",
        )


def _ndk() -> tuple[str, Path | None]:
    """Find the variable that names an NDK, and the NDK."""
    for variable in VARIABLES:
        if given := os.environ.get(variable, "").strip():
            return variable, Path(given)
    return "", None


def _tool(ndk: Path, name: str) -> Path | None:
    """Where an NDK keeps a tool for this machine; None if there are NDKs for no such machine."""
    if sys.platform not in HOSTS:
        return None
    suffix = ".exe" if sys.platform == "win32" else ""
    return ndk / "toolchains" / "llvm" / "prebuilt" / HOSTS[sys.platform] / "bin" / f"{name}{suffix}"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer the NDK."""
    return (Ndk(),)
