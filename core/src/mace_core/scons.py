"""The rules that SConstruct and SConscript files use; the only module that knows SCons.

from mace_core.scons import Build
build = Build(ARGUMENTS)
SConscript("models/SConscript", exports=build.rules())
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Errors
import SCons.Script

from mace_core.deployment import Deployment, load_deployment
from mace_core.errors import MaceError
from mace_core.failure import print_plugin_warnings, report_failure
from mace_core.fingerprint import fingerprint
from mace_core.pipeline import Job, build, file_names, isas
from mace_core.progress import show_progress
from mace_core.registry import Registry
from mace_core.run.files import write, write_all
from mace_core.terminal import escape_controls

FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-ffunction-sections", "-fdata-sections")
LIBRARY_FLAGS = (*FLAGS, "-fPIC", "-fvisibility=hidden")
PASSED_ON = ("PATH", "HOME", "TMPDIR", "TEMP", "SYSTEMROOT", "LOCALAPPDATA", "XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR")
"""Environment variables that compilers see."""

RUNTIME = Path(__file__).parent / "runtime"
PROGRAMS = ("mace_run", "mace_benchmark")


def exit_on_error(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a rule end SCons with one message: status 2 for a user's mistake, 3 for a defect."""

    @wraps(rule)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except (SCons.Errors.StopError, SCons.Errors.UserError):  # SCons words these itself
            raise
        except Exception as error:  # noqa: BLE001  # the last resort: whatever it is, the user gets one message
            sys.exit(report_failure(error))

    return wrapped


def fail_on_error(action: Callable[..., int | None]) -> Callable[..., int | None]:
    """Let an action fail with one message instead of SCons's traceback."""

    @wraps(action)
    def wrapped(target: Sequence[Any], source: Sequence[Any], env: Any) -> int | None:
        try:
            return action(target, source, env)
        except Exception as error:  # noqa: BLE001  # the last resort: whatever it is, the user gets one message
            return report_failure(error)

    return wrapped


@dataclass(frozen=True)
class Library:
    """What mace_library made, for the rules that build on it."""

    name: str
    deployment: Deployment
    folder: str
    variants: Mapping[str, Sequence[Any]]


class Build:
    """One run of SCons: its arguments, the plugins, an environment for each choice.

    arguments: SCons's ARGUMENTS; `target` (default "host"), `toolchain` to insist on one, `builds` for another output folder.
    """

    @exit_on_error
    def __init__(self, arguments: Mapping[str, str]) -> None:
        unknown = set(arguments) - {"target", "toolchain", "builds", "deployment"}
        if unknown:
            raise MaceError(f"{sorted(unknown)[0]}=", "no such option", "the options are target=, toolchain=, builds=")
        show_progress()
        print_plugin_warnings()
        self.registry = Registry.load()
        self.choices = self.registry.select(arguments.get("target", "host"), arguments.get("toolchain", ""))
        self.builds = arguments.get("builds", "builds")
        Path(self.builds).mkdir(parents=True, exist_ok=True)
        passed = {k: os.environ[k] for k in PASSED_ON if k in os.environ}
        self._env = SCons.Script.DefaultEnvironment(tools=[], ENV=passed)
        self._env.SConsignFile(os.path.abspath(f"{self.builds}/.sconsign"))
        SCons.Script.Help(_help(self.registry))

    def rules(self) -> dict[str, Callable[..., Any]]:
        """The rules by name, for `exports=` of SConscript."""
        rules = (self.mace_library, self.mace_test, self.mace_benchmark, self.mace_package)
        return {rule.__name__: exit_on_error(rule) for rule in rules}

    def mace_library(self, *, name: str, deployment: str) -> Library:
        """Build the library of a deployment file for every choice.

        Gives builds/NAME/{include,lib/VARIANT,bin/VARIANT,model}.
        """
        library: Library = self.library(deployment)
        if library.name != name:
            raise MaceError(deployment, f"library_name is {library.name!r}", f"call the rule with name={library.name!r}")
        return library

    @exit_on_error
    def library(self, deployment: str) -> Library:
        """Build the library of a deployment file, whatever its name."""
        file = self._env.File(deployment).srcnode()
        parsed = load_deployment(Path(file.get_abspath()), tuple(self.registry.frontends))
        folder = f"{self._root}/{parsed.library}"
        variants = {c.text: self._variant(Job(parsed, c), file, folder) for c in self.choices}
        common = self._install(parsed.library, folder)
        self._env.Default(*variants.values(), common)
        return Library(parsed.library, parsed, folder, {choice: [*nodes, *common] for choice, nodes in variants.items()})

    def mace_test(self, *, library: Library, labels: str = "", accuracy: float = 0.0) -> None:
        """Let `scons check` run the library on its validation data and compare with the expected outputs.

        labels: a .npy with the right class of each sample; `accuracy` is then the least share that must be right.
        """
        for choice in self.choices:
            result = f"{library.folder}/check/{choice.text}.json"
            sources = [library.variants[choice.text], *([labels] if labels else [])]
            env = self._env.Clone(MACE_CHECK=(library, choice, labels, accuracy, self._path(library.folder)), MACE_REGISTRY=self.registry)
            checked = env.Command(result, sources, SCons.Action.Action(_check, f"checking {library.name} for {choice.text}"))
            env.AlwaysBuild(checked)
            table = None if self._env.Alias("check")[0].sources else SCons.Action.Action(_table, None)  # one table for all
            self._env.AlwaysBuild(self._env.Alias("check", checked, table))

    def mace_benchmark(self, *, library: Library, rounds: int = 50) -> None:
        """Let `scons benchmark` time every model of the library."""
        for choice in self.choices:
            env = self._env.Clone(MACE_BENCHMARK=(library, choice, rounds, self._path(library.folder)))
            result = f"{library.folder}/benchmark/{choice.text}.json"
            timed = env.Command(result, library.variants[choice.text], SCons.Action.Action(_benchmark, None))
            env.AlwaysBuild(timed)
            env.Alias("benchmark", timed)

    def mace_package(self, *, name: str, libraries: Sequence[Library]) -> None:
        """Let `scons package` put libraries, headers and programs of all choices into builds/NAME.tar.gz."""
        sources = [node for library in libraries for nodes in library.variants.values() for node in nodes]
        action = SCons.Action.Action(_package, f"packing {name}.tar.gz")
        env = self._env.Clone(MACE_ROOT=self._path(self._root))
        env.Alias("package", env.Command(f"{self._root}/{name}.tar.gz", sources, action))

    @property
    def _root(self) -> str:
        """The output folder as SCons wants it: `#` is the folder of the SConstruct."""
        return self.builds if os.path.isabs(self.builds) else f"#{self.builds}"

    def _path(self, folder: str) -> str:
        path: str = self._env.Dir(folder).get_abspath()
        return path

    def _variant(self, job: Job, file: Any, folder: str) -> list[Any]:
        """All products of a library for one choice."""
        if job.choice.project:
            return self._projects(job, file, folder)
        env = self._configured(job)
        name, variant = job.deployment.library, job.choice.text
        generated = self._generate(env, job, file, folder)
        by_name = {os.path.basename(str(node)): node for node in generated}
        headers = [node for n, node in by_name.items() if n.endswith(".h")]
        objects = [self._compile(env, by_name[n], headers, job) for n in by_name if n.endswith((".c", ".S"))]
        weights = [node for n, node in by_name.items() if n.endswith(".bin")]
        for node in objects:
            env.Depends(node, weights if str(node).endswith("_weights.o") else headers)
        static = env.Command(f"{folder}/lib/{variant}/lib{name}.a", objects, _shown("$AR rcsD $TARGET $SOURCES", "archiving"))
        report = [node for n, node in by_name.items() if n.endswith(".json")]
        if not job.choice.compiler.hosted:
            return [static, *report]
        shared = env.Command(f"{folder}/lib/{variant}/lib{name}.so", objects, _shown("$LINK_SHARED", "linking"))
        programs = self._programs(env, job, folder, [static, headers])
        return [static, shared, *programs, *report]

    def _projects(self, job: Job, file: Any, folder: str) -> list[Any]:
        """A program for each model, of the project that the target makes."""
        env, target, variant = self._configured(job), job.choice.project, job.choice.text
        assert target is not None
        *generated, report = self._generate(env, job, file, folder)
        programs = []
        for model in job.deployment.models:
            layout, root = target.layout(model), f"{folder}/gen/{variant}/{model.name}"
            path = str(env.Dir(root))
            files = [node for node in generated if str(node).startswith(f"{path}{os.sep}")]
            headers = [node for node in files if str(node).endswith(".h")]
            extra = [f"-I{os.path.join(path, include)}" for include in layout.includes]
            objects = []
            for source in layout.sources:
                stem = f"{folder}/obj/{variant}/{model.name}/{os.path.splitext(source)[0]}"
                made = env.Command(f"{stem}.o", f"{root}/{source}", _shown("$COMPILE", "compiling"), EXTRA=extra)
                env.Depends(made, headers)
                objects += made
            command = _shown("$CC $PROGRAM_FLAGS $EXTRA -o $TARGET $SOURCES $LIBS", "linking")
            link = [os.path.join(path, flag) if flag in layout.files else flag for flag in layout.link]
            linked = env.Command(f"{folder}/bin/{variant}/{model.name}.elf", objects, command, EXTRA=link)
            env.Depends(linked, files)
            programs += linked
        return [*programs, report]

    def _configured(self, job: Job) -> Any:
        compiler = job.choice.compiler
        return self._env.Clone(
            MACE_JOB=job,
            MACE_REGISTRY=self.registry,
            CC=[*compiler.cc],
            AR=[*compiler.ar],
            FLAGS=[*compiler.flags, *(LIBRARY_FLAGS if compiler.hosted else FLAGS)],
            SHARED_FLAGS=[*compiler.flags, *compiler.shared, "-s", "-Wl,--gc-sections", f"-Wl,-soname,lib{job.deployment.library}.so"],
            PROGRAM_FLAGS=[*compiler.flags, *compiler.program, *([] if job.choice.project else ["-s"])],
            LIBS=[*compiler.libs],
            COMPILE="$CC $FLAGS $EXTRA -c -o $TARGET $SOURCE",
            LINK_SHARED="$CC $SHARED_FLAGS -o $TARGET $SOURCES $LIBS",
            LINK_PROGRAM="$CC $PROGRAM_FLAGS -o $TARGET $SOURCES -pthread $LIBS",
            EXTRA=[],
        )

    def _generate(self, env: Any, job: Job, file: Any, folder: str) -> list[Any]:
        models, names = job.deployment.models, file_names(job, self.registry)
        targets = [f"{folder}/gen/{job.choice.text}/{n}" for n in names] + [f"{folder}/model/{job.choice.text}.json"]
        read = [str(f) for m in models for f in self.registry.frontend(m).sources(m.files)]
        inputs = [file, *read, env.Value(fingerprint(job, self.registry))]
        made: list[Any] = env.Command(targets, inputs, SCons.Action.Action(_generate, _announce))
        env.Precious(made)
        return made

    def _compile(self, env: Any, source: Any, headers: Sequence[Any], job: Job) -> Any:
        stem = os.path.splitext(os.path.basename(str(source)))[0]
        level = next((i for i in isas(job.choice, self.registry) if stem.endswith(f"_kernels_{i.name}")), None)
        extra = [f"-I{source.dir}", f"-Wa,-I{source.dir}", *(("-O3", *level.flags) if level else ())]
        (made,) = env.Command(f"{source.dir.dir.dir}/obj/{job.choice.text}/{stem}.o", source, _shown("$COMPILE", "compiling"), EXTRA=extra)
        return made

    def _install(self, name: str, folder: str) -> list[Any]:
        """What all choices have in common: headers, the thread pool's source, an example."""
        libraries = [c for c in self.choices if not c.project]
        if not libraries:
            return []
        action = SCons.Action.Action(_copy, None)
        copied = {"include/mace_threads.h": "mace_threads.h", "src/mace_threads.c": "mace_threads.c", "src/example.c": "example.c"}
        made = [self._env.Command(f"{folder}/{to}", self._env.File(str(RUNTIME / file)), action) for to, file in copied.items()]
        for header in ("mace.h", f"{name}.h"):
            variants = [f"{folder}/gen/{c.text}/{header}" for c in libraries]
            made.append(self._env.Command(f"{folder}/include/{header}", variants, action))
        return made

    def _programs(self, env: Any, job: Job, folder: str, needs: Sequence[Any]) -> list[Any]:
        static, headers = needs
        variant = job.choice.text
        define = f"-DMACE_LIBRARY={job.deployment.library}"
        extra = [define, f"-I{headers[0].dir}", f"-I{RUNTIME}"]
        objects = {}
        for stem in (*PROGRAMS, "mace_threads"):
            source = env.File(str(RUNTIME / f"{stem}.c"))
            target = f"{folder}/obj/{variant}/{stem}.o"
            (objects[stem],) = env.Command(target, source, _shown("$COMPILE", "compiling"), EXTRA=extra)
            env.Depends(objects[stem], [*headers, env.File(str(RUNTIME / "mace_tool.h"))])
        return [
            env.Command(f"{folder}/bin/{variant}/{p}", [objects[p], objects["mace_threads"], static], _shown("$LINK_PROGRAM", "linking"))
            for p in PROGRAMS
        ]


def _shown(command: str, verb: str) -> Any:
    return SCons.Action.Action(command, f"{verb} $TARGET")


def _announce(target: Sequence[Any], source: Sequence[Any], env: Any) -> str:
    job: Job = env["MACE_JOB"]
    compiler = job.choice.compiler
    return f"generating {job.deployment.library} for {job.choice.text} (toolchain {job.choice.toolchain.name}: {compiler.libc})"


def _say(text: str) -> None:
    sys.stdout.write(f"  {escape_controls(text)}\n")
    sys.stdout.flush()


@fail_on_error
def _generate(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    job: Job = env["MACE_JOB"]
    sources = build(job, env["MACE_REGISTRY"], _say)
    assert set(file_names(job, env["MACE_REGISTRY"])) == set(sources.files), "file_names disagrees with build"
    report = Path(target[-1].get_abspath())
    write_all(report.parents[1] / "gen" / job.choice.text, sources.files)
    write(report, json.dumps(sources.report, indent=1, sort_keys=True) + "\n")
    models = sources.report["models"]
    assert isinstance(models, dict)
    for name, figures in models.items():
        _say(f"{name}: {arena_line(figures)}, weights {figures['weight_bytes']} bytes, {figures['transposes']} transposes")
    notes = [f"{name}: {note}" for name, figures in models.items() for note in figures.get("notes", ())]
    for note in (*job.deployment.notes, *notes):
        _say(f"note: {note}")
    return 0


def arena_line(figures: Mapping[str, Any]) -> str:
    """The arena's size beside its lower bound, for the build's log."""
    bound = max(figures["arena_lower_bound"], 1)
    return f"arena {figures['arena_bytes']} bytes ({figures['arena_bytes'] / bound:.3f} x the largest live set)"


@fail_on_error
def _copy(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    """One file for all choices; they must agree on it."""
    first, *others = (Path(node.get_abspath()).read_bytes() for node in source)
    if any(other != first for other in others):
        sys.stderr.write(f"mace: {target[0]}: the choices need different ones; build each with its own builds=FOLDER\n")
        return 2
    write(Path(target[0].get_abspath()), first)
    return 0


@fail_on_error
def _check(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    from mace_core.run.check import check_library

    library, choice, labels, accuracy, folder = env["MACE_CHECK"]
    labels_file = Path(source[-1].srcnode().get_abspath()) if labels else None
    rows = check_library((library.deployment, env["MACE_REGISTRY"]), Path(folder), choice, labels_file, accuracy)
    write(Path(target[0].get_abspath()), json.dumps(rows, indent=1) + "\n")
    return 0


@fail_on_error
def _table(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    from mace_core.run.check import show

    rows = [row for node in source for row in json.loads(Path(node.get_abspath()).read_text(encoding="utf-8"))]
    sys.stdout.write(show(rows))
    return 0 if all(row["passed"] for row in rows) else 2


@fail_on_error
def _benchmark(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    from mace_core.run.check import benchmark_library

    library, choice, rounds, folder = env["MACE_BENCHMARK"]
    rows, text = benchmark_library(library.deployment, Path(folder), choice, rounds)
    sys.stdout.write(text)
    write(Path(target[0].get_abspath()), json.dumps(rows, indent=1) + "\n")
    return 0


@fail_on_error
def _package(target: Sequence[Any], source: Sequence[Any], env: Any) -> None:
    """Files in the order of their names, without owners or dates: the same bytes from the same files."""
    import gzip

    root, packed = Path(env["MACE_ROOT"]), BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in sorted({Path(node.get_abspath()) for node in source}):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size, entry.mode = path.stat().st_size, 0o755 if path.parent.parent.name == "bin" else 0o644
            tar.addfile(entry, BytesIO(path.read_bytes()))
    write(Path(target[0].get_abspath()), packed.getvalue())


def _help(registry: Registry) -> str:
    abis = "\n".join(f"    {abi:16} {chains[0].abis[abi]}" for abi, chains in sorted(registry.abis().items()))
    targets = ", ".join(sorted(registry.targets))
    return f"""
scons target=ABI[+TARGET...][,...]   build every library in models/ for each choice (default: host)
scons target=... check               run the libraries on their validation data and print a table
scons target=... benchmark           time them
scons target=... package             pack them
  toolchain=NAME   insist on a toolchain   builds=FOLDER   put everything there

ABIs:
{abis}
targets: {targets}
"""
