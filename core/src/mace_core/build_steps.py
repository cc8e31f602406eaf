"""The steps that build a library or a project: what each makes, from what, and how. Knows no build system.

All paths of products and sources are relative to the library's folder, and every command runs there, without a shell. So neither a
shell nor a compiler driver, which split and expand their arguments each in an own way, ever sees a path that comes from outside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from mace_core.api import Compiler
from mace_core.emit.code import HEADERS
from mace_core.fingerprint import fingerprint
from mace_core.generation import Job, file_names, generate, isas
from mace_core.package_files import package_files
from mace_core.project_target import ProjectTarget
from mace_core.registry import Registry
from mace_core.report import ModelReport
from mace_core.run.command import Command, Say
from mace_core.run.files import write, write_all
from mace_core.tuning import tuning_file

FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-ffunction-sections", "-fdata-sections")
LIBRARY_FLAGS = (*FLAGS, "-fPIC", "-fvisibility=hidden")

RUNTIME = Path(__file__).parent / "runtime"
RUNTIME_SOURCES = ("mace_threads.c", "mace_run.c", "mace_benchmark.c", "mace_tool.h")
PROGRAMS = ("mace_run", "mace_benchmark")


@dataclass(frozen=True)
class Step:
    """One step of a build.

    products: what it makes.  sources: products of other steps that it reads.  inputs: files from outside that it reads.
    run: does it, and says through its argument what a user should hear; raises MaceError.
    announcement: a line that is printed first.
    signature: what the products depend on besides the content of the files.
    replaces: whether it keeps products that are still right; otherwise old ones are removed before.
    """

    products: tuple[str, ...]
    sources: tuple[str, ...]
    run: Callable[[Say], None]
    announcement: str = ""
    signature: str = ""
    inputs: tuple[Path, ...] = ()
    replaces: bool = True


@dataclass(frozen=True)
class Place:
    """Where a library is built, and from which file.

    folder: the library's folder.  shown: the same as users should read it.  environment: the variables that compilers see.
    """

    deployment: Path
    folder: Path
    shown: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class LibraryPaths:
    """Where the products of one choice lie in the library's folder."""

    variant: str

    @property
    def generated(self) -> str:
        """The folder of generated sources."""
        return f"gen/{self.variant}"

    @property
    def objects(self) -> str:
        """The folder of objects."""
        return f"obj/{self.variant}"

    @property
    def include(self) -> str:
        """The folder of the choice's own headers."""
        return f"include/{self.variant}"

    @property
    def libraries(self) -> str:
        """The folder of static and shared library."""
        return f"lib/{self.variant}"

    @property
    def programs(self) -> str:
        """The folder of programs."""
        return f"bin/{self.variant}"

    @property
    def report(self) -> str:
        """The file that describes the models, for validation and benchmarks."""
        return f"model/{self.variant}.json"


def choice_steps(place: Place, job: Job, registry: Registry) -> list[Step]:
    """The steps of everything that is made for one choice."""
    builder = _Commands(place, job, LibraryPaths(job.choice.text))
    generate = _generate_step(builder, registry)
    if job.choice.project:
        return [generate, *_project_steps(builder, job.choice.project)]
    return [generate, *_library_steps(builder, registry)]


def common_steps(place: Place, jobs: Sequence[Job]) -> list[Step]:
    """The steps of what all choices of a library share: headers, the sources of the runtime, an example."""
    libraries = [job for job in jobs if not job.choice.project]
    if not libraries:
        return []
    name = libraries[0].deployment.library
    variants = [job.choice.text for job in libraries]
    steps = [_copy_step(place, f"src/{file}", RUNTIME / file) for file in RUNTIME_SOURCES]
    steps += [_write_step(place, path, text) for path, text in package_files(name, variants[0]).common.items()]
    for header in _headers(name):
        sources = tuple(f"include/{variant}/{header}" for variant in variants)
        run = partial(_merge_headers, place.folder, header, variants)
        steps.append(Step((f"include/{header}",), sources, run, signature=" ".join(variants)))
    return steps


def _headers(library: str) -> tuple[str, ...]:
    return (*HEADERS, f"{library}.h", "mace_threads.h")


class _Commands:
    """Makes the steps that run a command of the toolchain."""

    def __init__(self, place: Place, job: Job, paths: LibraryPaths) -> None:
        self.place, self.job, self.paths = place, job, paths
        self.compiler: Compiler = job.choice.compiler

    def step(self, verb: str, product: str, sources: Sequence[str], words: Sequence[str]) -> Step:
        """Run `words` in the library's folder; it makes one product."""
        shown = os.path.join(self.place.shown, product)
        command = Command(tuple(words), self.place.folder, self.place.environment, shown, self.compiler.slow)
        return Step((product,), tuple(sources), command.execute, f"{verb} {shown}", "\0".join(words), replaces=False)

    def compile(self, source: str, name: str, needs: Sequence[str], flags: Sequence[str]) -> Step:
        """Compile one source into the folder of objects."""
        product = f"{self.paths.objects}/{name}.o"
        base = LIBRARY_FLAGS if self.compiler.hosted else FLAGS
        words = (*self.compiler.cc, *self.compiler.flags, *base, *flags, "-c", "-o", product, source)
        return self.step("compiling", product, (source, *needs), words)


def _generate_step(builder: _Commands, registry: Registry) -> Step:
    job, paths = builder.job, builder.paths
    names = file_names(job, registry)
    products = (*(f"{paths.generated}/{name}" for name in names), paths.report)
    read = [file for model in job.deployment.models for file in registry.frontend(model).sources(model.files)]
    read += [file for model in job.deployment.models if (file := tuning_file(model))]
    compiler = job.choice.compiler
    words = registry.abis()[job.choice.abi][0].abis[job.choice.abi]
    announcement = f"generating {job.deployment.library} for {job.choice.text}"
    announcement += f" ({words}; toolchain {job.choice.toolchain.name}: {compiler.libc})"
    run = partial(_generate, builder, registry)
    return Step(products, (), run, announcement, fingerprint(job, registry), (builder.place.deployment, *read))


def _generate(builder: _Commands, registry: Registry, say: Say) -> None:
    job, folder = builder.job, builder.place.folder
    made = generate(job, registry, say)
    assert set(file_names(job, registry)) == set(made.sources.files), "file_names disagrees with generate"
    write_all(folder / builder.paths.generated, made.sources.files)
    write(folder / builder.paths.report, json.dumps(made.report.as_json(), indent=1, sort_keys=True) + "\n")
    for name, model in made.report.models.items():
        say(f"{name}: {arena_line(model)}, weights {model.weight_bytes} bytes, {model.transposes} transposes")
        if stored := stored_line(model.details):
            say(f"{name}: {stored}")
    for note in made.report.notes:
        say(f"note: {note}")
    for name, model in made.report.models.items():
        for note in model.notes:
            say(f"note: {name}: {note}")


def arena_line(model: ModelReport) -> str:
    """Return the arena's size beside its lower bound, for the build's log."""
    bound = max(model.arena_lower_bound, 1)
    return f"arena {model.arena_bytes} bytes ({model.arena_bytes / bound:.3f} x the largest live set)"


def stored_line(details: Mapping[str, object]) -> str:
    """Return what `weights: as-stored` changed, for the build's log; "" where it was not asked for."""
    figures = details.get("weights_as_stored")
    if not isinstance(figures, Mapping):
        return ""
    sizes = f"{figures['stored_bytes']} bytes instead of {figures['packed_bytes']}"
    arena = f"widened into at most {figures['widened_bytes']} bytes of the arena for one call"
    return f"{figures['weights']} weights as stored: {sizes}, {arena}"


def _library_steps(builder: _Commands, registry: Registry) -> Iterator[Step]:
    """Headers, objects, libraries, programs and what other build systems want to know."""
    job, paths, compiler = builder.job, builder.paths, builder.compiler
    name = job.deployment.library
    for header in (*HEADERS, f"{name}.h"):
        yield _copy_step(builder.place, f"{paths.include}/{header}", f"{paths.generated}/{header}")
    yield _copy_step(builder.place, f"{paths.include}/mace_threads.h", RUNTIME / "mace_threads.h")
    units = list(_unit_steps(builder, registry))
    headers = [f"{paths.include}/{header}" for header in _headers(name)]
    if compiler.hosted:
        units.append(builder.compile("src/mace_threads.c", "mace_threads", headers, [f"-I{paths.include}"]))
    yield from units
    objects = [step.products[0] for step in units]
    static = f"{paths.libraries}/lib{name}.a"
    yield builder.step("archiving", static, objects, (*compiler.ar, "rcsD", static, *objects))
    for path, text in package_files(name, job.choice.text, compiler.hosted).of_choice.items():
        yield _write_step(builder.place, path, text)
    if not compiler.hosted:
        return
    shared = f"{paths.libraries}/lib{name}.so"
    link = (*compiler.cc, *compiler.flags, *compiler.shared, "-s", "-Wl,--gc-sections", f"-Wl,-soname,lib{name}.so")
    yield builder.step("linking", shared, objects, (*link, "-o", shared, *objects, "-pthread", *compiler.libs))
    flags = (f"-DMACE_MODELS={name}_models", f"-DMACE_MODEL_COUNT={name}_model_count", f"-I{paths.include}", "-Isrc")
    before: tuple[str, ...] = ()
    for program in PROGRAMS:
        compiled = builder.compile(f"src/{program}.c", program, [*headers, "src/mace_tool.h"], flags)
        yield compiled
        product, sources = f"{paths.programs}/{program}", (compiled.products[0], static)
        words = (*compiler.cc, *compiler.flags, *compiler.program, "-s", "-o", product, *sources, "-pthread", *compiler.libs)
        yield builder.step("linking", product, (*sources, *before), words)
        before = (product,) if compiler.slow else ()  # what the first link builds for itself is ready when the second begins


def _unit_steps(builder: _Commands, registry: Registry) -> Iterator[Step]:
    """Compile every generated source; the kernels of each instruction-set level with its flags."""
    folder, names = builder.paths.generated, file_names(builder.job, registry)
    headers = [f"{folder}/{name}" for name in names if name.endswith(".h")]
    weights = [f"{folder}/{name}" for name in names if name.endswith(".bin")]
    levels = isas(builder.job.choice, registry)
    for name in names:
        stem, suffix = os.path.splitext(name)
        level = next((level for level in levels if stem.endswith(f"_kernels_{level.name}")), None)
        flags = [f"-I{folder}", *(("-O3", *level.flags) if level else ())]
        if suffix == ".c":
            yield builder.compile(f"{folder}/{name}", stem, headers, flags)
        elif suffix == ".S":
            yield builder.compile(f"{folder}/{name}", stem, weights, [*flags, f"-Wa,-I{folder}"])


def _project_steps(builder: _Commands, target: ProjectTarget) -> Iterator[Step]:
    """A program for each model, of the project that the target makes."""
    compiler, paths = builder.compiler, builder.paths
    for model in builder.job.deployment.models:
        layout, root = target.layout(model), f"{paths.generated}/{model.name}"
        files = [f"{root}/{name}" for name in layout.files]
        headers = [file for file in files if file.endswith(".h")]
        includes = [f"-I{PurePosixPath(root, folder)}" for folder in layout.includes]
        objects: list[str] = []
        for source in layout.sources:
            step = builder.compile(f"{root}/{source}", f"{model.name}/{os.path.splitext(source)[0]}", headers, includes)
            yield step
            objects += step.products
        link = [f"{root}/{flag}" if flag in layout.files else flag for flag in layout.link]
        product = f"{paths.programs}/{model.name}.elf"
        words = (*compiler.cc, *compiler.flags, *compiler.program, *link, "-o", product, *objects, *compiler.libs)
        yield builder.step("linking", product, [*objects, *files], words)


def _copy_step(place: Place, product: str, source: str | Path) -> Step:
    """Copy a file of another step, given as a string, or one from outside, given as a path."""
    inside, outside = ((source,), ()) if isinstance(source, str) else ((), (source,))
    return Step((product,), inside, partial(_copy, place.folder / product, place.folder / source), inputs=outside)


def _copy(product: Path, source: Path, say: Say) -> None:
    write(product, source.read_bytes())


def _write_step(place: Place, product: str, text: str) -> Step:
    return Step((product,), (), partial(_write, place.folder / product, text), signature=text)


def _write(product: Path, text: str, say: Say) -> None:
    write(product, text)


def _merge_headers(folder: Path, header: str, variants: Sequence[str], say: Say) -> None:
    """Write the header that all choices share; where theirs differ, one that names the folder to include from.

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
