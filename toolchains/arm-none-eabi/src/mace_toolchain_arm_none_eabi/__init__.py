"""GCC for ARM microcontrollers without an operating system."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl

FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"cortex-m4": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft")}
)
"""ABI -> flags of every compilation and link.

Floats are computed without the coprocessor, which is off after a reset.
"""

WITHOUT_SYSTEM = ("-ffreestanding", "-fno-common", "-ffunction-sections", "-fdata-sections")


class ArmNoneEabi(Toolchain):
    """GCC as Debian, Ubuntu and ARM package it for bare machines."""

    name = "arm-none-eabi"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"cortex-m4": "ARM Cortex-M4 without an operating system, soft-float"}
    )

    def missing(self, abi: str) -> str | None:
        """None if the compiler is in PATH."""
        if shutil.which("arm-none-eabi-gcc") and shutil.which("arm-none-eabi-ar"):
            return None
        return "arm-none-eabi-gcc is not in PATH: apt-get install gcc-arm-none-eabi"

    def compiler(self, abi: str) -> Compiler:
        """Programs of the application's own start-up code, with nothing but libgcc.

        MaceError if there is no compiler.
        """
        if reason := self.missing(abi):
            raise MaceError("toolchain arm-none-eabi", f"is not ready for {abi}", reason)
        return Compiler(
            cc=("arm-none-eabi-gcc",),
            ar=("arm-none-eabi-ar",),
            flags=(*FLAGS[abi], *WITHOUT_SYSTEM),
            program=("-nostdlib", "-Wl,--gc-sections"),
            libs=("-lgcc",),
            libc="no C library",
            hosted=False,
        )


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer GCC for bare machines."""
    return (ArmNoneEabi(),)
