"""Lists the files of a project, and compiles them without the vendor's SDK.

The list depends on the options only, so it is known before the model is read. `build_firmware` compiles and
links a project at once, without a build system: for tests and for quick looks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from mace_core.api import Compiler
from mace_core.errors import MaceError
from mace_core.project_target import Layout
from mace_core.run.files import write_all
from mace_target_max78000.options import Options

TEMPLATES = files("mace_target_max78000.firmware") / "templates"
BOARD = files("mace_target_max78000.firmware") / "board"

CONSTANT: Mapping[str, str] = {
    "Makefile": "Makefile.in",
    "msdk.mk": "msdk.mk.in",
    "log.txt": "log.txt.in",
    ".project": "project.in",
    ".cproject": "cproject.in",
    ".vscode/tasks.json": "tasks.json.in",
    ".vscode/launch.json": "launch.json.in",
    ".vscode/c_cpp_properties.json": "c_cpp_properties.json.in",
}
"""Files whose names no option changes: path -> template."""

# Warnings do not stop a build, because compilers that we have never seen have warnings of their own; our
# tests add -Werror.
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra")
INCLUDES = (".", "board")
LINKER_SCRIPT = "board/bare/link.ld"
RISCV_LINKER_SCRIPT = "board/bare/link_riscv.ld"
RISCV_MAIN = "_riscv.c"
"""How the RISC-V core's main ends, beside the Cortex-M4's."""
ARM_BOARD, RISCV_BOARD = "board/bare/cortex_m4.c", "board/bare/riscv.c"


MAPS = ("report.txt", "report.json", "memory.svg")
"""Files about a project, which are not part of its program."""


def describe_layout(options: Options, refusal: str) -> Layout:
    """Return all files of a project, with what is compiled and linked.  refusal: why it cannot be built."""
    files = tuple(layout(options))
    return Layout((*files, *MAPS), sources(files), headers(files), INCLUDES, LINKER_SCRIPT, refusal)


def layout(options: Options) -> Mapping[str, Traversable]:
    """Return the project's files: path -> template."""
    named = {
        options.api_filename: "cnn.c.in",
        header(options): "cnn.h.in",
        options.weight_filename: "weights.h.in",
        options.sample_filename: "sampledata.h.in",
        options.c_filename: "main.c.in",
        **CONSTANT,
    }
    if options.known_answer:
        named[options.sample_output_filename] = "sampleoutput.h.in"
    if options.softmax:
        named["softmax.c"] = "softmax.c"
    board = dict(_board(BOARD, "board/"))
    if options.riscv:
        named |= {
            options.c_filename: "main_arm.c.in",
            f"{options.c_filename.removesuffix('.c')}{RISCV_MAIN}": "main.c.in",
        }
        board[RISCV_LINKER_SCRIPT] = board[LINKER_SCRIPT]
    else:
        del board[RISCV_BOARD]
    return {path: TEMPLATES / template for path, template in named.items()} | board


def header(options: Options) -> str:
    """Return the header's name: that of the source whose functions it declares."""
    return options.api_filename.removesuffix(".c") + ".h"


def sources(paths: Iterable[str], riscv: bool = False) -> tuple[str, ...]:
    """Return the files that are compiled without the vendor's SDK, for the Cortex-M4 or the RISC-V core."""
    paths, other = tuple(paths), ARM_BOARD if riscv else RISCV_BOARD
    board = (p for p in paths if p.startswith("board/bare/") and p.endswith(".c") and p != other)
    return (*own_sources(paths, riscv), *sorted(board))


def headers(paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of the project's files that sources include."""
    return tuple(path for path in paths if path.endswith(".h"))


def own_sources(paths: Iterable[str], riscv: bool = False) -> tuple[str, ...]:
    """Return the sources outside the board layer.

    Where the RISC-V core has a main function of its own, the network's sources are compiled for that core.
    """
    network_sources = sorted(p for p in paths if p.endswith(".c") and "/" not in p)
    starter = [p for p in network_sources if p.removesuffix(".c") + RISCV_MAIN in network_sources]
    if riscv:
        return tuple(p for p in network_sources if p not in starter) if starter else ()
    return tuple(starter or network_sources)


def _board(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _board(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name.removesuffix(".in"), entry


NAME = "firmware.elf"


def build_firmware(
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
    done = subprocess.run(  # noqa: S603  # the toolchain's
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MaceError(" ".join(command), f"fails\n{done.stderr}")
