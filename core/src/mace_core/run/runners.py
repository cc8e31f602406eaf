"""Runners that several toolchains share: this machine, and QEMU's emulation of one program."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mace_core.api import Runner
from mace_core.errors import MaceError
from mace_core.toolchain import EMULATED

MACHINES: Mapping[str, str] = {"amd64": "x86_64", "arm64": "aarch64"}
"""Other words for a processor -> the word that Linux has for it."""


class Native(Runner):
    """Executes a program on this machine."""

    name = "native"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Give the program itself."""
        return [str(program.absolute()), *arguments]


class Qemu(Runner):
    """Executes a statically linked Linux program of another processor.

    processor: as QEMU names it: "aarch64", "arm", "x86_64".
    """

    name = "qemu"
    timing = EMULATED

    def __init__(self, processor: str) -> None:
        self.processor = processor

    def missing(self) -> str | None:
        """None if QEMU's user mode is in PATH."""
        if self._emulator() is None:
            return f"qemu-{self.processor} is not in PATH: apt-get install qemu-user"
        return None

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Give the emulator and the program; MaceError if the emulator is missing."""
        emulator = self._emulator()
        if emulator is None:
            raise MaceError(
                program.name, f"qemu-{self.processor} is not in PATH", "apt-get install qemu-user"
            )
        return [emulator, str(program.absolute()), *arguments]

    def _emulator(self) -> str | None:
        """Debian has a package of dynamic and one of static emulators; both do."""
        name = f"qemu-{self.processor}"
        return shutil.which(name) or shutil.which(f"{name}-static")


def processor() -> str:
    """Name the processor of this machine as Linux does: "x86_64", "aarch64" ..."""
    machine = platform.machine().lower()
    return MACHINES.get(machine, machine)


def linux(name: str) -> Runner:
    """Return the runner of static Linux programs for a processor: this machine if it fits, else QEMU."""
    return Native() if sys.platform == "linux" and processor() == name else Qemu(name)
