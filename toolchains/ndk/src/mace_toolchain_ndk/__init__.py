"""Compiles for Android with the clang of an installed NDK."""

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

# Gradle's Android plugin set ANDROID_NDK_HOME; CMake and newer tools read ANDROID_NDK_ROOT.
VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
HOSTS: Mapping[str, str] = {"linux": "linux-x86_64", "darwin": "darwin-x86_64", "win32": "windows-x86_64"}
"""sys.platform -> the NDK's folder of tools; the one for macOS also serves Apple's own processors."""

API_LEVEL = 21
"""Android 5.0, the first with 64-bit ABIs."""


@dataclass(frozen=True)
class NdkAbi:
    """What the NDK's clang needs to know of an ABI.

    description: what it is, for lists of ABIs.  triple: clang's name of it, without the API level.
    flags: for every compilation and link, beyond what the triple implies.  shared: for shared libraries.
    """

    description: str
    triple: str
    flags: tuple[str, ...] = ()
    shared: tuple[str, ...] = ("-shared",)


# Android 15 runs on devices with pages of 16 KiB, whose loader refuses libraries with segments aligned to
# 4 KiB; the NDK's linker aligns to 16 KiB by itself only from r28 on.
LARGE_PAGES = ("-shared", "-Wl,-z,max-page-size=16384")

ABIS: Mapping[str, NdkAbi] = MappingProxyType(
    {
        "arm64-v8a": NdkAbi("Android on 64-bit ARM", "aarch64-linux-android", shared=LARGE_PAGES),
        "x86_64": NdkAbi(
            "Android on x86-64 (Linux on x86-64 is amd64)", "x86_64-linux-android", shared=LARGE_PAGES
        ),
        # Before Android 7 the stack is aligned to 4 bytes only; SSE loads and stores need 16.
        "x86": NdkAbi("Android on 32-bit x86", "i686-linux-android", ("-mstackrealign",)),
        # NEON is optional in Google's definition of the ABI, but the NDK itself compiles with it since r21.
        "armeabi-v7a": NdkAbi(
            "Android on 32-bit ARM: ARMv7 with NEON, softfp",
            "armv7a-linux-androideabi",
            ("-mfpu=neon", "-mfloat-abi=softfp"),
        ),
    }
)


class Ndk(Toolchain):
    """The clang of an Android NDK, r21 or newer, that ANDROID_NDK_HOME or ANDROID_NDK_ROOT names."""

    name = "ndk"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: abi.description for name, abi in ABIS.items()}
    )

    def missing(self, abi: str) -> str | None:
        """Return what to set; None if an NDK is there with its compiler for this machine."""
        # One NDK has the compiler and the libraries of all its ABIs.
        variable, folder = _find_ndk()
        if folder is None:
            return f"no Android NDK: set {VARIABLES[0]} to one (https://developer.android.com/ndk/downloads)"
        clang = _tool(folder, "clang")
        if clang is None or not clang.is_file():
            absent = clang or f"tools for {sys.platform}"
            remedy = f"set {VARIABLES[0]} to the folder of an NDK, r21 or newer, for this machine"
            return f"{variable}={folder} has no {absent}: {remedy}"
        return None

    def compiler(self, abi: str) -> Compiler:
        """Return the compiler for Android 5.0 and newer; MaceError if there is no NDK."""
        if reason := self.missing(abi):
            raise MaceError("toolchain ndk", f"is not ready for {abi}", reason)
        folder = _find_ndk()[1]
        assert folder is not None
        ndk_abi = ABIS[abi]
        return Compiler(
            cc=(str(_tool(folder, "clang")),),
            ar=(str(_tool(folder, "llvm-ar")),),
            flags=(f"--target={ndk_abi.triple}{API_LEVEL}", *ndk_abi.flags),
            shared=ndk_abi.shared,
            libc=f"bionic of the NDK, Android API level {API_LEVEL}",
        )


def _find_ndk() -> tuple[str, Path | None]:
    """Return the variable that names an NDK, and the NDK's folder; None if no variable is set."""
    for variable in VARIABLES:
        if folder := os.environ.get(variable, "").strip():
            return variable, Path(folder)
    return "", None


def _tool(ndk: Path, name: str) -> Path | None:
    """Return where an NDK keeps a tool for this machine; None if no NDK is made for such a machine."""
    if sys.platform not in HOSTS:
        return None
    suffix = ".exe" if sys.platform == "win32" else ""
    return ndk / "toolchains" / "llvm" / "prebuilt" / HOSTS[sys.platform] / "bin" / f"{name}{suffix}"


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer the clang of the NDK."""
    return (Ndk(),)
