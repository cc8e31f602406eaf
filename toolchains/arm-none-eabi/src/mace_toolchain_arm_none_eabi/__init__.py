"""Compiles for ARM microcontrollers without an operating system, with GCC."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl

# Soft-float, because the floating-point coprocessor is off after a reset (Armv7-M Architecture Reference
# Manual, register CPACR) and start-up code would have to enable it before the first float. A library is also
# linked into applications that were compiled with soft-float, and the linker refuses a mix.
FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"cortex-m4": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")}
)
"""ABI -> flags for every compilation and link."""

WITHOUT_SYSTEM = (
    # No C library stands behind the program: GCC must not turn code into calls of printf and the like.
    "-ffreestanding",
    # A variable that two files define by mistake is an error of the linker, not one shared variable.
    "-fno-common",
    # One section for each function and variable, so that --gc-sections drops the unused ones from flash.
    "-ffunction-sections",
    "-fdata-sections",
)
"""Flags for code that runs without an operating system."""


class ArmNoneEabi(Toolchain):
    """GCC as Debian, Ubuntu and ARM package it for machines without an operating system."""

    name = "arm-none-eabi"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"cortex-m4": "ARM Cortex-M4 without an operating system, soft-float"}
    )

    def missing(self, abi: str) -> str | None:
        """Return how to install the compiler; None if it is in PATH."""
        if shutil.which("arm-none-eabi-gcc") and shutil.which("arm-none-eabi-ar"):
            return None
        return "arm-none-eabi-gcc is not in PATH: apt-get install gcc-arm-none-eabi"

    def compiler(self, abi: str) -> Compiler:
        """Return the compiler of programs with start-up code of their own; MaceError if it is missing."""
        if reason := self.missing(abi):
            raise MaceError("toolchain arm-none-eabi", f"is not ready for {abi}", reason)
        return Compiler(
            cc=("arm-none-eabi-gcc",),
            ar=("arm-none-eabi-ar",),
            flags=(*FLAGS[abi], *WITHOUT_SYSTEM),
            program=("-nostdlib", "-Wl,--gc-sections"),
            # -nostdlib drops libgcc too, which has the soft-float arithmetic and 64-bit division.
            libs=("-lgcc",),
            libc="no C library",
            hosted=False,
        )


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer GCC for machines without an operating system."""
    return (ArmNoneEabi(),)
