"""Compiles sources at once into one product, without a build system: for tests and for quick looks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from mace_core.api import Compiler, GeneratedFiles
from mace_core.build_manifest import describe_runtime, describe_tool
from mace_core.errors import MaceError
from mace_core.manifest import Manifest, Product, Unit
from mace_core.run.files import write_all

WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")


def shared_library(
    sources: GeneratedFiles, compiler: Compiler, folder: Path, flags: tuple[str, ...] = ("-O2",)
) -> Path:
    """Compile the library of models into folder/library.so.

    flags: behind those that the manifest states, so that a level of optimization overrules them.
    """
    manifests = [manifest for manifest in sources.manifests if manifest.joins_library]
    words = _compile(sources, manifests, compiler, folder, flags)
    _run([*compiler.cc, *compiler.flags, *compiler.shared, *flags, "-o", "library.so", *words], folder)
    return folder / "library.so"


def device_libraries(
    sources: GeneratedFiles, find_compiler: Callable[[str], Compiler], folder: Path, flags: tuple[str, ...]
) -> list[Path]:
    """Compile the shared libraries for other ABIs, which lie beside the library of models, into the folder.

    find_compiler: returns the compiler of an ABI.
    """
    libraries = []
    for manifest in sources.manifests:
        if manifest.abi and manifest.product is Product.LIBRARY:
            compiler = find_compiler(manifest.abi)
            name = f"lib{manifest.name}.so"
            # In a folder of their own, because objects of several ABIs may have one name.
            objects = folder / manifest.abi
            words = _compile(sources, [manifest], compiler, objects, flags)
            link_words = [*compiler.cc, *compiler.flags, *compiler.shared, *flags, f"-Wl,-soname,{name}"]
            _run([*link_words, "-o", str(folder.absolute() / name), *words], objects)
            libraries.append(folder / name)
    return libraries


def program(
    name: str, sources: GeneratedFiles, compiler: Compiler, folder: Path, flags: tuple[str, ...]
) -> Path:
    """Compile the library of models and one of the programs that come with every library into folder/NAME."""
    library = next(manifest for manifest in sources.manifests if manifest.joins_library)
    library = library.join([describe_runtime(library, compiler.hosted)])
    return link(replace(sources, manifests=(library, describe_tool(name, library))), compiler, folder, flags)


def link(sources: GeneratedFiles, compiler: Compiler, folder: Path, flags: tuple[str, ...]) -> Path:
    """Compile the library of models and link it with the only program among the manifests, in the folder."""
    (program_manifest,) = (manifest for manifest in sources.manifests if manifest.product is Product.PROGRAM)
    words = _compile(sources, sources.manifests, compiler, folder, flags)
    threads = ["-pthread"] if compiler.hosted else []
    _run(
        [
            *compiler.cc,
            *compiler.flags,
            *compiler.program,
            *flags,
            "-o",
            program_manifest.name,
            *threads,
            *words,
        ],
        folder,
    )
    return folder / program_manifest.name


def check_syntax(sources: GeneratedFiles, compiler: Compiler, folder: Path, abi: str = "") -> None:
    """Let the compiler check every unit of an ABI, in the folder alone.

    abi: that of some manifests; "" for the build's own. MaceError with what the compiler says.

    Objects are made without optimization and thrown away: with -fsyntax-only, zig would link, and build a C
    library for that.
    """
    manifests = [manifest for manifest in sources.manifests if manifest.abi == abi]
    _write(sources, manifests, folder)

    def check_unit(pair: tuple[Manifest, Unit]) -> None:
        _run([*_command(*pair, compiler), "-O0", "-c", pair[1].source, "-o", os.devnull], folder)

    # What only embeds bytes has no syntax to check.
    units = [(manifest, unit) for manifest, unit in _list_units(manifests) if not unit.embeds]
    with ThreadPoolExecutor() as pool:
        list(pool.map(check_unit, units))


def check_link(compiler: Compiler, folder: Path) -> None:
    """Link a program that does nothing, as the programs of a library are linked.

    MaceError with what the linker says.
    """
    (folder / "nothing.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    _run(
        [
            *compiler.cc,
            *compiler.flags,
            *compiler.program,
            "nothing.c",
            "-o",
            "nothing",
            "-pthread",
            *compiler.libs,
        ],
        folder,
    )


def _list_units(manifests: Iterable[Manifest]) -> Iterator[tuple[Manifest, Unit]]:
    for manifest in manifests:
        for unit in manifest.units:
            yield manifest, unit


def _write(sources: GeneratedFiles, manifests: Iterable[Manifest], folder: Path) -> None:
    paths = dict(chain.from_iterable(manifest.copies.items() for manifest in manifests))
    copies = {name: path.read_bytes() for name, path in paths.items()}
    write_all(folder, {**copies, **sources.files})


def _command(manifest: Manifest, unit: Unit, compiler: Compiler) -> list[str]:
    includes = [f"-I{folder}" for folder in manifest.includes]
    return [*compiler.cc, *compiler.flags, *WARNINGS, *unit.flags, *includes]


def _compile(
    sources: GeneratedFiles,
    manifests: Sequence[Manifest],
    compiler: Compiler,
    folder: Path,
    flags: tuple[str, ...],
) -> list[str]:
    """Compile every unit; return the words that a link needs: objects, then libraries."""
    _write(sources, manifests, folder)

    def compile_unit(pair: tuple[Manifest, Unit]) -> str:
        embeds = ["-Wa,-I."] if pair[1].embeds else []
        words = [*_command(*pair, compiler), *flags, "-fPIC", *embeds]
        _run([*words, "-c", pair[1].source, "-o", pair[1].object], folder)
        return pair[1].object

    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_unit, _list_units(manifests)))
    libraries = dict.fromkeys(chain.from_iterable(manifest.libraries for manifest in manifests))
    return [*objects, *(f"-l{name}" for name in libraries), *compiler.libs]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise MaceError(
            command[0], f"cannot be executed: {error.strerror}", "install the toolchain, see `mace plugins`"
        ) from None
    if done.returncode:
        raise MaceError(command[0], f"failed\n{' '.join(command)}\n{done.stderr[-6000:]}")
