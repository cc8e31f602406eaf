"""Sources compiled at once into one shared library, without a build system: for tests and for quick looks."""

from __future__ import annotations

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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # the toolchain's
    if done.returncode:
        raise MaceError(command[0], f"failed\n{' '.join(command)}\n{done.stderr[-6000:]}")
