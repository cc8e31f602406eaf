"""A DSP without a phone: a stand-in for the FastRPC library, and a process under QEMU that plays the DSP.

The DSP library that is loaded is the file that a device would get. What the process lacks of a DSP: its
clock, its caches, its signatures, and the interrupts of a remote call.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mace_core.api import Compiler
from mace_core.errors import MaceError
from mace_core.run.runners import Qemu

PACKAGE = Path(str(files("mace_target_hexagon")))
STAND_IN = "libcdsprpc.so"
LOADER = "dsp_loader"
PROCESSOR = "hexagon"
ABI = "hexagon-v66"
"""What QEMU's user emulation executes; a DSP library for it runs on later versions of the DSP too."""

FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra")


@dataclass(frozen=True)
class EmulatedDsp:
    """The two programs.  folder: of the stand-in.  loader: the program that plays the DSP."""

    folder: Path
    loader: Path

    def environment(self, libraries: Sequence[Path]) -> dict[str, str]:
        """Return the variables with which a program finds the emulated DSP.

        libraries: folders of DSP libraries.
        """
        command = Qemu(PROCESSOR).command(self.loader, [])
        return {
            "LD_LIBRARY_PATH": str(self.folder),
            "MACE_DSP_COMMAND": " ".join(command),
            "ADSP_LIBRARY_PATH": ";".join(map(str, libraries)),
        }


def find_missing() -> str | None:
    """Return what to install for an emulated DSP; None if it is there."""
    return Qemu(PROCESSOR).missing()


def build_emulator(folder: Path, native: Compiler, dsp: Compiler, flags: Sequence[str] = ()) -> EmulatedDsp:
    """Compile both programs into a folder.

    native: the compiler of this machine.  dsp: that of ABI.  flags: further ones for the stand-in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    includes = tuple(f"-I{PACKAGE / name}" for name in ("driver", "dsp", "emulator"))
    shared = (*native.cc, *native.flags, *FLAGS, "-fPIC", "-shared", "-fvisibility=hidden", *flags, *includes)
    # The driver opens the stand-in by the name that it asks a phone for, so that is its own name as well.
    _compile((*shared, f"-Wl,-soname,{STAND_IN}", str(PACKAGE / "emulator/cdsprpc.c")), folder / STAND_IN)
    # Static, because QEMU would look for a dynamic loader that nobody has for this processor.
    static = (*dsp.cc, *dsp.flags, *dsp.program, *FLAGS, *includes)
    sources = [str(PACKAGE / "emulator" / name) for name in ("dsp_loader.c", "dsp_system.c")]
    _compile((*static, *sources, "-lm", "-pthread"), folder / LOADER)
    return EmulatedDsp(folder, folder / LOADER)


def _compile(words: Sequence[str], product: Path) -> None:
    command = [*words, "-o", str(product)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MaceError(
            product.name, f"cannot be compiled\n{done.stderr[-4000:]}", "see the compiler's message"
        )
