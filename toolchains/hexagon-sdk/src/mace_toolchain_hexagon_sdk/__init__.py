"""Compiles for Hexagon DSPs with the clang of an installed Hexagon SDK.

Folders, programs and flags as the SDK's own `hexagon_toolchain.cmake` states them, and the guide
"Hexagon LLVM C/C++ Compiler".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from mace_core.api import Compiler, Runner, Toolchain
from mace_core.errors import MaceError
from mace_core.hookspecs import hookimpl

ROOT = "HEXAGON_SDK_ROOT"
TOOLS = "DEFAULT_HEXAGON_TOOLS_ROOT"
"""What `setup_sdk_env.source` of the SDK sets: its folder, and that of one version of its compiler."""

CLANG, ARCHIVER, SIMULATOR = "hexagon-clang", "hexagon-llvm-ar", "hexagon-sim"
VERSIONS = (66, 68, 69, 73)


class HexagonSimulator(Runner):
    """The SDK's simulator, which counts cycles of the processor's core and none of its memory.

    program: its file.  version: of the processor.
    """

    name = "hexagon-sim"
    timing = "simulated"

    def __init__(self, program: Path, version: int) -> None:
        self.program, self.version = program, version

    def missing(self) -> str | None:
        """None if the SDK has the simulator."""
        if self.program.is_file():
            return None
        return f"no {self.program}: install the simulator with the SDK's package manager"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Return the simulator and the program; MaceError if the simulator is missing."""
        if reason := self.missing():
            raise MaceError(program.name, "cannot be simulated", reason)
        options = [f"-mv{self.version}", "--simulated_returnval"]
        return [str(self.program), *options, str(program.absolute()), "--", *arguments]


class HexagonSdk(Toolchain):
    """The clang of the Hexagon SDK that HEXAGON_SDK_ROOT names."""

    name = "hexagon-sdk"
    abis: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            f"hexagon-v{version}": f"Qualcomm Hexagon DSP v{version} with HVX vectors of 128 bytes"
            for version in VERSIONS
        }
    )

    def missing(self, abi: str) -> str | None:
        """Return what to install or set; None if the SDK's compiler is there."""
        try:
            folder = _find_tools()
        except MaceError as error:
            return str(error)
        absent = [name for name in (CLANG, ARCHIVER) if not (folder / "bin" / name).is_file()]
        if not absent:
            return None
        programs = f"no {', '.join(absent)} in {folder / 'bin'}"
        return f"{programs}: install the Hexagon tools with the SDK's package manager"

    def compiler(self, abi: str) -> Compiler:
        """Return the SDK's compiler; MaceError if it is not there."""
        if reason := self.missing(abi):
            raise MaceError("toolchain hexagon-sdk", f"is not ready for {abi}", reason)
        folder = _find_tools()
        # -G0: shared libraries cannot reach small data by the global pointer, which is the program's.
        processor = (f"-mv{_version(abi)}", "-mhvx", "-mhvx-length=128b", "-G0")
        return Compiler(
            cc=(str(folder / "bin" / CLANG),),
            ar=(str(folder / "bin" / ARCHIVER),),
            flags=processor,
            # What a library defines itself must not be taken from another one of the same process on the DSP.
            shared=("-shared", "-fpic", "-Wl,-Bsymbolic"),
            libc=f"the C library of the Hexagon tools {folder.parent.name}",
        )

    def runner(self, abi: str) -> Runner | None:
        """Return the SDK's simulator; None without an SDK."""
        try:
            return HexagonSimulator(_find_tools() / "bin" / SIMULATOR, _version(abi))
        except MaceError:
            return None


def _version(abi: str) -> int:
    return int(abi.removeprefix("hexagon-v"))


def _find_tools() -> Path:
    """Return the folder with `bin` of the compiler that is set, or of the newest one.

    MaceError without an SDK.
    """
    if tools := os.environ.get(TOOLS, "").strip():
        return Path(tools) / "Tools"
    root = os.environ.get(ROOT, "").strip()
    if not root:
        raise MaceError("no Hexagon SDK", f"{ROOT} not set", "install it, and set the variable to its folder")
    folder = Path(root) / "tools" / "HEXAGON_Tools"
    versions = [path for path in folder.glob("*") if (path / "Tools").is_dir()]
    if not versions:
        raise MaceError(f"{ROOT}={root}", f"has no {folder}/VERSION/Tools", "set it to the folder of an SDK")
    return max(versions, key=_order) / "Tools"


def _order(folder: Path) -> list[int]:
    """Return the numbers in the name of a version, so that 8.10 comes behind 8.9."""
    return [int(number) for number in re.findall(r"\d+", folder.name)]


@hookimpl
def mace_toolchains() -> Iterable[Toolchain]:
    """Offer the compiler of the SDK."""
    return (HexagonSdk(),)
