"""Sources compiled at once into one shared library, without a build system: for tests and for quick looks."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from mace_core.api import Compiler, Sources
from mace_core.errors import MaceError
from mace_core.run.files import write_all

WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


def shared_library(sources: Sources, compiler: Compiler, folder: Path, flags: tuple[str, ...] = ("-O2",)) -> Path:
    """Compile everything into folder/library.so."""
    objects = _objects(sources, compiler, folder, flags)
    _run([*compiler.cc, *compiler.flags, *compiler.shared, *flags, *objects, "-o", "library.so", *compiler.libs], folder)
    return folder / "library.so"


def program(name: str, sources: Sources, compiler: Compiler, folder: Path, flags: tuple[str, ...]) -> Path:
    """Compile everything and one of the programs that come with every library into folder/NAME; `flags` say which library it is for."""
    runtime = files("mace_core") / "runtime"
    more = {f: (runtime / f).read_text(encoding="utf-8") for f in (f"{name}.c", "mace_threads.c", "mace_threads.h", "mace_tool.h")}
    return link(name, replace(sources, files={**sources.files, **more}), compiler, folder, flags)


def link(name: str, sources: Sources, compiler: Compiler, folder: Path, flags: tuple[str, ...]) -> Path:
    """Compile everything, a main function among it, into the program folder/NAME."""
    objects = _objects(sources, compiler, folder, flags)
    _run([*compiler.cc, *compiler.flags, *compiler.program, *flags, *objects, "-o", name, "-pthread", *compiler.libs], folder)
    return folder / name


def check_syntax(sources: Sources, compiler: Compiler, folder: Path, flags: tuple[str, ...] = ()) -> None:
    """Let the compiler check every C file, in the folder alone; MaceError with what it says.

    Objects without optimization are made and thrown away: zig links, and builds a C library for that, when it is told to check only.
    """
    write_all(folder, {name: content for name, content in sources.files.items() if name.endswith((".c", ".h"))})

    def check_unit(name: str) -> None:
        command = [*compiler.cc, *compiler.flags, *WARNINGS, *flags, *sources.flags.get(name, ()), "-I."]
        _run([*command, "-O0", "-c", name, "-o", os.devnull], folder)

    with ThreadPoolExecutor() as pool:
        list(pool.map(check_unit, [name for name in sources.files if name.endswith(".c")]))


def check_link(compiler: Compiler, folder: Path) -> None:
    """Link a program that does nothing, as the programs of a library are linked; MaceError with what the linker says."""
    (folder / "nothing.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    _run([*compiler.cc, *compiler.flags, *compiler.program, "nothing.c", "-o", "nothing", "-pthread", *compiler.libs], folder)


def _objects(sources: Sources, compiler: Compiler, folder: Path, flags: tuple[str, ...]) -> list[str]:
    write_all(folder, sources.files)
    units = [n for n in sources.files if n.endswith((".c", ".S"))]

    def compile_unit(name: str) -> str:
        command = [*compiler.cc, *compiler.flags, *WARNINGS, *flags, *sources.flags.get(name, ()), "-fPIC", "-I.", "-Wa,-I."]
        _run([*command, "-c", name, "-o", f"{name}.o"], folder)
        return f"{name}.o"

    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_unit, units))


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # the toolchain's
    except OSError as error:
        raise MaceError(command[0], f"cannot be executed: {error.strerror}", "install the toolchain, see `mace plugins`") from None
    if done.returncode:
        raise MaceError(command[0], f"failed\n{' '.join(command)}\n{done.stderr[-6000:]}")
