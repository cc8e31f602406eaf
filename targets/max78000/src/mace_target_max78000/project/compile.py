"""A project compiled and linked at once, without a build system: for tests and for quick looks."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from mace_core.api import Compiler
from mace_core.errors import MaceError
from mace_core.run.files import write_all
from mace_target_max78000.project.layout import FLAGS, INCLUDES, LINKER_SCRIPT, RISCV_LINKER_SCRIPT, sources

NAME = "firmware.elf"


def firmware(
    files: Mapping[str, str | bytes],
    compiler: Compiler,
    folder: Path,
    define: tuple[str, ...] = (),
    riscv: bool = False,
) -> bytes:
    """Write the project's files into the folder, build folder/firmware.elf and give its bytes.

    compiler: of a machine without an operating system.  define: macros, NAME or NAME=VALUE.  riscv: the
    RISC-V core's program. MaceError with what a tool complained about.
    """
    write_all(folder, files)
    flags = (*FLAGS, *(f"-I{i}" for i in INCLUDES), *(f"-D{d}" for d in define))
    objects = []
    for source in sources(files, riscv):
        objects.append(f"{source.replace('/', '_')}.o")
        _run([*compiler.cc, *compiler.flags, *flags, "-c", source, "-o", objects[-1]], folder)
    link = (
        *compiler.program,
        "-T",
        RISCV_LINKER_SCRIPT if riscv else LINKER_SCRIPT,
        *objects,
        "-o",
        NAME,
        *compiler.libs,
    )
    _run([*compiler.cc, *compiler.flags, *link], folder)
    return (folder / NAME).read_bytes()


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # the toolchain's
    if done.returncode:
        raise MaceError(" ".join(command), f"fails\n{done.stderr}")
