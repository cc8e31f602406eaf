"""Turns manifests into the steps of a build: what each makes, from what, and how. Knows no build system.

All paths of products and sources are relative to the library's folder, and every command runs there, without
a shell. So neither a shell nor a compiler driver, which split and expand their arguments each in an own way,
ever sees a path that comes from outside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath

from mace_core.api import Compiler
from mace_core.build_manifest import (
    RUNTIME,
    RUNTIME_HEADERS,
    SHIPPED,
    check_buildable,
    collect_manifests,
)
from mace_core.emit import code
from mace_core.errors import PluginError
from mace_core.fingerprint import fingerprint
from mace_core.generation import generate
from mace_core.job import Job
from mace_core.manifest import RUNTIME_SHARE, Manifest, Product, Unit
from mace_core.package_files import package_files
from mace_core.registry import Registry
from mace_core.report import arena_line, stored_line
from mace_core.run.command import Command, Say
from mace_core.run.files import write, write_all
from mace_core.run.library_size import measure_library, size_text
from mace_core.states import start_files
from mace_core.step import BuildPlace, LibraryPaths, Step, copy_step, write_step
from mace_core.tuning import tuning_file

# Warnings do not stop the build of a product, because compilers that we have never seen have warnings of
# their own; our tests compile the same code with -Werror (`run.compile.WARNINGS`).
FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-ffunction-sections", "-fdata-sections")
MOST_URGENT = 1_000_000
"""Of generating sources, which nearly all other steps wait for."""

LIBRARY_FLAGS = (*FLAGS, "-fPIC", "-fvisibility=hidden")


@dataclass(frozen=True)
class Variant:
    """Everything that is built of a library for one choice.

    steps: everything that is made. manifests: what it is made of.
    """

    place: BuildPlace
    job: Job
    manifests: tuple[Manifest, ...]
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """The text of the choice."""
        return self.job.choice.text

    @property
    def library(self) -> Manifest | None:
        """The library of models; None where programs hold them all."""
        return next((manifest for manifest in self.manifests if manifest.joins_library), None)

    @property
    def shown_folder(self) -> str:
        """The folder of the libraries, or of the programs if there are none, as messages show it."""
        paths = LibraryPaths(self.name)
        return os.path.join(self.place.displayed, paths.libraries if self.library else paths.programs)

    @property
    def size_file(self) -> Path:
        """The file that tells the bytes of the library; there is none where programs hold all models."""
        return self.place.folder / LibraryPaths(self.name).size


def plan_variant(place: BuildPlace, job: Job, registry: Registry) -> Variant:
    """Return the steps of everything that is made for one choice."""
    manifests = collect_manifests(job, registry)
    check_buildable(manifests)
    return Variant(place, job, manifests, tuple(_list_steps(place, job, registry, manifests)))


def _list_steps(
    place: BuildPlace, job: Job, registry: Registry, manifests: Sequence[Manifest]
) -> Iterator[Step]:
    paths = LibraryPaths(job.choice.text)
    yield _generate_step(place, job, registry, manifests)
    copies = dict(chain.from_iterable(manifest.copies.items() for manifest in manifests))
    copies |= _find_early_headers(manifests)
    for name, source in copies.items():
        yield copy_step(place, f"{paths.generated}/{name}", source)
    for manifest in manifests:
        for header in manifest.headers:
            yield copy_step(place, f"{paths.include}/{header}", f"{paths.generated}/{header}")
    builders = {
        abi: _Builder(place, paths, _find_compiler(job, registry, abi), abi)
        for abi in {m.abi: None for m in manifests}
    }
    available = {manifest.name: manifest for manifest in manifests if manifest.joins_library}
    for manifest in manifests:
        yield from builders[manifest.abi].build(manifest, [available[name] for name in manifest.needs])
    for library in available.values():
        package = package_files(library, job.choice.text, job.choice.compiler.hosted)
        for path, text in package.of_choice.items():
            yield write_step(place, path, text)


def _find_early_headers(manifests: Sequence[Manifest]) -> dict[str, Path]:
    """Return those of the generated headers that come with MACE, and can be had before any model is read."""
    libraries = [manifest for manifest in manifests if manifest.joins_library]
    generated = {*chain.from_iterable(library.generated for library in libraries)}
    return {name: RUNTIME / name for name in code.HEADERS if name in generated}


def _find_compiler(job: Job, registry: Registry, abi: str) -> Compiler:
    return registry.find_toolchain(abi).compiler(abi) if abi else job.choice.compiler


def common_steps(place: BuildPlace, variants: Sequence[Variant]) -> list[Step]:
    """Return the steps of what all choices of a library share: headers, runtime sources, package files."""
    libraries = {variant.name: variant.library for variant in variants if variant.library}
    if not libraries:
        return []
    names = [*libraries]
    steps = [copy_step(place, f"src/{file}", RUNTIME / file) for file in SHIPPED]
    steps += [
        write_step(place, path, text)
        for path, text in package_files(libraries[names[0]], names[0]).common.items()
    ]
    for header in dict.fromkeys(chain.from_iterable(library.headers for library in libraries.values())):
        having = [name for name, library in libraries.items() if header in library.headers]
        sources = tuple(f"include/{name}/{header}" for name in having)
        run = partial(_merge_headers, place.folder, header, having)
        steps.append(Step((f"include/{header}",), sources, run, signature=" ".join(having)))
    return steps


class _Builder:
    """Makes the steps that compile and link what is for one ABI.

    abi: "" for that of the build; products of another lie beside the library.
    """

    def __init__(self, place: BuildPlace, paths: LibraryPaths, compiler: Compiler, abi: str) -> None:
        self.place, self.paths, self.compiler, self.abi = place, paths, compiler, abi
        self.linked: tuple[str, ...] = ()

    def build(self, manifest: Manifest, libraries: Sequence[Manifest]) -> Iterator[Step]:
        """Compile the units of a product and link them with these libraries, which other steps make."""
        headers = [*chain.from_iterable(library.headers for library in (manifest, *libraries))]
        objects: list[str] = []
        for following, unit in zip(reversed(range(len(manifest.units))), manifest.units, strict=True):
            step = self._compile(unit, manifest, headers)
            objects += step.products
            yield replace(step, urgency=following)
        if manifest.product is Product.PROGRAM:
            yield from self._program(manifest, objects, libraries)
        elif manifest.abi:
            yield from self._copy_to_programs(self._link_shared(manifest, objects, self.paths.libraries))
        else:
            static = f"{self.paths.libraries}/lib{manifest.name}.a"
            yield self._step("archiving", static, objects, (*self.compiler.ar, "rcsD", static, *objects))
            files = [static]
            if self.compiler.hosted:
                shared = self._link_shared(manifest, objects, self.paths.libraries)
                yield shared
                files += shared.products
            yield self._measure(manifest, files)
        for file in manifest.deploys:
            for folder in (self.paths.libraries, self.paths.programs):
                yield copy_step(self.place, f"{folder}/{file}", f"{self.paths.generated}/{file}")

    def _compile(self, unit: Unit, manifest: Manifest, headers: Sequence[str]) -> Step:
        folder = self.paths.generated
        product = self._object_of(unit)
        if unit.is_independent:
            headers = [header for header in headers if header in RUNTIME_HEADERS]
        sources = [f"{folder}/{name}" for name in dict.fromkeys((*unit.sources, *headers))]
        includes = [f"-I{PurePosixPath(folder, name)}" for name in manifest.includes]
        if unit.embeds:
            includes.append(f"-Wa,-I{folder}")
        base = LIBRARY_FLAGS if self.compiler.hosted else FLAGS
        words = (
            *self.compiler.cc,
            *self.compiler.flags,
            *base,
            *includes,
            *unit.flags,
            "-c",
            "-o",
            product,
            sources[0],
        )
        return self._step("compiling", product, sources, words)

    def _object_of(self, unit: Unit) -> str:
        return str(PurePosixPath(self.paths.objects, self.abi, unit.object))

    def _measure(self, manifest: Manifest, files: Sequence[str]) -> Step:
        """Measure the library of which these are the files, once all of it is there."""
        # Printed first, as what all libraries have; units stand in the order of their compilation.
        objects: dict[str, list[str]] = {RUNTIME_SHARE: []}
        for unit in manifest.units:
            objects.setdefault(unit.share, []).append(self._object_of(unit))
        sources = (*chain.from_iterable(objects.values()), *files)
        run = partial(_write_size, self.place.folder, self.paths.size, objects, files)
        return Step((self.paths.size,), sources, run, signature=json.dumps(objects))

    def _link_shared(self, manifest: Manifest, objects: Sequence[str], folder: str) -> Step:
        file = f"lib{manifest.name}.so"
        if not self.compiler.hosted:
            problem = f"is a shared library for {self.abi}, which has no operating system to load it"
            raise PluginError(f"manifest {manifest.name!r}", problem, "make it a program")
        product = f"{folder}/{file}"
        link = (
            *self.compiler.cc,
            *self.compiler.flags,
            *self.compiler.shared,
            "-s",
            "-Wl,--gc-sections",
            f"-Wl,-soname,{file}",
        )
        words = (*link, "-o", product, *objects, "-pthread", *self._libraries(manifest))
        return self._step("linking", product, objects, words)

    def _program(
        self, manifest: Manifest, objects: Sequence[str], libraries: Sequence[Manifest]
    ) -> Iterator[Step]:
        folder = self.paths.libraries if self.abi else self.paths.programs
        product = f"{folder}/{manifest.name}"
        archives = [f"{self.paths.libraries}/lib{library.name}.a" for library in libraries]
        sources = [*objects, *archives]
        script: list[str] = []
        if manifest.linker_script:
            sources.append(f"{self.paths.generated}/{manifest.linker_script}")
            script = ["-T", sources[-1]]
        hosted = ("-s",) if self.compiler.hosted else ()
        threads = ("-pthread",) if self.compiler.hosted else ()
        words = (
            *self.compiler.cc,
            *self.compiler.flags,
            *self.compiler.program,
            *hosted,
            *script,
            "-o",
            product,
            *objects,
            *archives,
        )
        step = self._step(
            "linking",
            product,
            [*sources, *self.linked],
            (*words, *threads, *self._libraries(manifest, *libraries)),
        )
        # What the first link of a slow toolchain builds for itself is ready when the second begins.
        self.linked = (product,) if self.compiler.slow else ()
        yield from self._copy_to_programs(step) if self.abi else (step,)

    def _copy_to_programs(self, step: Step) -> Iterator[Step]:
        """Copy a product of another ABI to the programs as well.

        The programs are linked statically and look for it in their own folder.
        """
        yield step
        name = PurePosixPath(step.products[0]).name
        yield copy_step(self.place, f"{self.paths.programs}/{name}", step.products[0])

    def _libraries(self, *manifests: Manifest) -> list[str]:
        names = dict.fromkeys(chain.from_iterable(manifest.libraries for manifest in manifests))
        return [*(f"-l{name}" for name in names), *self.compiler.libs]

    def _step(self, verb: str, product: str, sources: Sequence[str], words: Sequence[str]) -> Step:
        """Run `words` in the library's folder; they make one product."""
        displayed = os.path.join(self.place.displayed, product)
        command = Command(
            tuple(words), self.place.folder, self.place.environment, displayed, self.compiler.slow
        )
        return Step(
            (product,),
            tuple(sources),
            command.execute,
            f"{verb} {displayed}",
            "\0".join(words),
            replaces=False,
        )


def _write_size(
    folder: Path, product: str, objects: Mapping[str, Sequence[str]], files: Sequence[str], say: Say
) -> None:
    paths = {share: [folder / name for name in names] for share, names in objects.items()}
    write(folder / product, size_text(measure_library(paths, [folder / name for name in files])))


def _generate_step(place: BuildPlace, job: Job, registry: Registry, manifests: Sequence[Manifest]) -> Step:
    paths = LibraryPaths(job.choice.text)
    early = _find_early_headers(manifests)
    names = chain.from_iterable(manifest.generated for manifest in manifests)
    products = (*(f"{paths.generated}/{name}" for name in names if name not in early), paths.report)
    read: list[Path] = []
    for model in job.deployment.models:
        read += registry.frontend(model).dependencies(model.files)
        read += start_files(model).values()
    read += filter(None, map(tuning_file, job.deployment.models))
    compiler = job.choice.compiler
    words = registry.abis()[job.choice.abi][0].abis[job.choice.abi]
    announcement = f"generating {job.deployment.library} for {job.choice.text}"
    announcement += f" ({words}; toolchain {job.choice.toolchain.name}: {compiler.libc})"
    run = partial(_generate, place, job, registry, early)
    signature, inputs = fingerprint(job, registry), (place.deployment, *read)
    return Step(products, (), run, announcement, signature, inputs, urgency=MOST_URGENT)


def _generate(place: BuildPlace, job: Job, registry: Registry, early: Container[str], say: Say) -> None:
    paths = LibraryPaths(job.choice.text)
    generated = generate(job, registry, say)
    files = {name: content for name, content in generated.sources.files.items() if name not in early}
    write_all(place.folder / paths.generated, files)
    write(
        place.folder / paths.report, json.dumps(generated.report.as_json(), indent=1, sort_keys=True) + "\n"
    )
    for name, model in generated.report.models.items():
        say(f"{name}: {arena_line(model)}, weights {model.weight_bytes} bytes, {model.transposes} transposes")
        if line := stored_line(model.details):
            say(f"{name}: {line}")
    for note in generated.report.notes:
        say(f"note: {note}")
    for name, model in generated.report.models.items():
        for note in model.notes:
            say(f"note: {name}: {note}")
    for manifest in generated.sources.manifests:
        for library, remedy in manifest.loads.items():
            say(f"note: {manifest.name} looks for {library} when it runs; where it is missing: {remedy}")


def _merge_headers(folder: Path, header: str, variants: Sequence[str], say: Say) -> None:
    """Write the header that all choices share.

    Where theirs differ, one that names the folder to include from.

    A header of one choice used with the library of another would give too small an arena.
    """
    contents = {(folder / "include" / variant / header).read_bytes() for variant in variants}
    if len(contents) == 1:
        write(folder / "include" / header, contents.pop())
        return
    folders = " or ".join(f"include/{variant}" for variant in variants)
    problem = f"{header} differs between the targets of this library: add {folders} to the include path"
    write(folder / "include" / header, f'#error "{problem}"\n')
    say(f"note: {header} differs between the choices: include it from {folders}")
