"""The rules that SConstruct and SConscript files use; the only module that knows SCons.

from mace_core.scons import Build
build = Build(ARGUMENTS)
SConscript("models/SConscript", exports=build.rules())

SCons substitutes `$NAME` and `${python}` in every string that it is given as a path or a command. So it is
given none: files are nodes, made without substitution, and what is done to them are Python functions, which
run commands without a shell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Errors
import SCons.Node.FS
import SCons.SConsign
import SCons.Script
import SCons.Taskmaster

from mace_core.build_folder import BuildFolder
from mace_core.build_steps import common_steps, plan_variant
from mace_core.deployment import Deployment
from mace_core.deployment.names import c_name
from mace_core.errors import MaceError
from mace_core.failure import print_plugin_warnings, report_failure
from mace_core.job import Job
from mace_core.pipeline import load_with
from mace_core.progress import show_progress
from mace_core.registry import Choice, Registry
from mace_core.rule_steps import (
    benchmark_step,
    check_step,
    describe_options,
    package_step,
    print_checks,
    summary_step,
)
from mace_core.run.check import LibraryCheck
from mace_core.step import BuildPlace, Step
from mace_core.terminal import escape_controls

PASSED_ON = (
    "PATH",
    "HOME",
    "TMPDIR",
    "TEMP",
    "SYSTEMROOT",
    "LOCALAPPDATA",
    "XDG_CACHE_HOME",
    "ZIG_GLOBAL_CACHE_DIR",
)
"""Environment variables that compilers see."""

OPTIONS = ("target", "toolchain", "builds", "fallback", "deployment")


def exit_on_error(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Let a rule end SCons with one message: status 2 for a user's mistake, 3 for a defect."""

    @wraps(rule)
    def run_rule(*args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except (SCons.Errors.StopError, SCons.Errors.UserError):  # SCons words these itself
            raise
        except Exception as error:  # noqa: BLE001  # the last resort: one message for anything
            sys.exit(report_failure(error))

    return run_rule


@dataclass(frozen=True)
class Library:
    """A library that mace_library declared, for the rules that use it.

    folder: where it is built.  variants: the nodes of its products by the text of the choice.
    """

    name: str
    deployment: Deployment
    folder: Path
    variants: Mapping[str, Sequence[Any]]


class Build:
    """One run of SCons: its arguments, the plugins, the folder that everything is built in.

    arguments: SCons's ARGUMENTS; `target` (default: the ABIs of the file that `deployment` names, else
    "host"), `toolchain` to insist on one, `builds` for another output folder, `fallback=no` to refuse models
    of which a node would go to a target that nobody named.
    """

    @exit_on_error
    def __init__(self, arguments: Mapping[str, str]) -> None:
        unknown = set(arguments) - set(OPTIONS)
        if unknown:
            raise MaceError(
                f"{sorted(unknown)[0]}=",
                "no such option",
                "the options are target=, toolchain=, builds=, fallback=",
            )
        if arguments.get("fallback", "yes") not in ("yes", "no"):
            raise MaceError(
                f"fallback={arguments['fallback']}",
                "is neither yes nor no",
                "write fallback=no, or leave it out",
            )
        self.no_fallback = arguments.get("fallback") == "no"
        _print_any_character()
        show_progress()
        print_plugin_warnings()
        self.registry = Registry.load()
        self.choices = self.registry.select(self._target(arguments), arguments.get("toolchain", ""))
        # Not the default environment, which belongs to the application's own rules and looks for its tools.
        # Steps name all that they read, so that nothing is scanned for #include.
        self._env = SCons.Script.Environment(tools=[], SCANNERS=[])
        self._folder = BuildFolder(
            Path(
                os.path.abspath(
                    os.path.join(self._env.fs.Top.get_abspath(), arguments.get("builds") or "builds")
                )
            )
        )
        self._env["MACE_FOLDER"] = self._folder
        self._libraries: set[str] = set()
        SCons.SConsign.File(str(self._folder.signatures))
        # SCons calls it at the end of every build, also of one that failed.
        SCons.SConsign.write = partial(_write_signatures, SCons.SConsign.write, self._folder)
        SCons.Taskmaster.Taskmaster.find_next_candidate = _find_most_urgent
        SCons.Script.Help(describe_options(self.registry).replace("$", "$$"))
        if SCons.Action.execute_actions and not SCons.Script.GetOption("help"):
            self._folder.open(_say)

    def _target(self, arguments: Mapping[str, str]) -> str:
        """Return what to build for; `mace build` without --target names only its deployment file."""
        if "deployment" in arguments and "target" not in arguments:
            return ",".join(load_with(self.registry, Path(arguments["deployment"])).abis)
        return arguments.get("target", "host")

    def rules(self) -> dict[str, Callable[..., Any]]:
        """The rules by name, for `exports=` of SConscript."""
        rules = (self.mace_library, self.mace_test, self.mace_benchmark, self.mace_package)
        return {rule.__name__: exit_on_error(rule) for rule in rules}

    def mace_library(self, *, name: str, deployment: Any) -> Library:
        """Build the library of a deployment file for every choice.

        Gives builds/NAME/{include,lib/CHOICE,bin/CHOICE,model,src}.
        """
        library: Library = self.library(deployment)
        if library.name != c_name(name):
            raise MaceError(
                deployment, f"library_name is {library.name!r}", f"call the rule with name={library.name!r}"
            )
        return library

    @exit_on_error
    def library(self, deployment: Any) -> Library:
        """Build the library of a deployment file, whatever its name.

        deployment: its path from the folder of the SConscript, or a node.
        """
        file = Path(self._outside(deployment).srcnode().get_abspath())
        parsed = load_with(self.registry, file)
        if parsed.library in self._libraries:
            raise MaceError(
                deployment,
                f"another library is called {parsed.library!r}",
                "give one of them another library_name",
            )
        self._libraries.add(parsed.library)
        folder = self._folder.path / parsed.library
        place = BuildPlace(
            file, folder, self._path_to_show(folder), {k: os.environ[k] for k in PASSED_ON if k in os.environ}
        )
        variants = [
            plan_variant(place, Job(parsed, choice, self.no_fallback), self.registry)
            for choice in self.choices
        ]
        nodes = {variant.name: self._add(folder, variant.steps) for variant in variants}
        common = self._add(folder, common_steps(place, variants))
        products = [*nodes.values(), common]
        size_files = {
            f"{parsed.library} for {variant.name}: {variant.shown_folder}": variant.size_file
            for variant in variants
        }
        self._env.Default(
            products
            if SCons.Script.GetOption("question")
            else self._summary(parsed.library, products, size_files)
        )
        return Library(
            parsed.library, parsed, folder, {name: [*built, *common] for name, built in nodes.items()}
        )

    def mace_test(self, *, library: Library, labels: Any = "", accuracy: float = 0.0) -> None:
        """Let `scons check` run the library on its validation data and compare with the expected outputs.

        labels: a .npy with the right class of each sample; `accuracy` is then the smallest share of right
        classes that passes.
        """
        labels_file = Path(self._outside(labels).srcnode().get_abspath()) if labels else None
        for choice in self.choices:
            check = LibraryCheck(library.deployment, library.folder, choice, labels_file, accuracy)
            checked = self._add_always(library, choice, check_step(check, self.registry))
            # One table for all.
            table = None if self._env.Alias("check")[0].sources else SCons.Action.Action(_print_checks, None)
            self._env.AlwaysBuild(self._env.Alias("check", checked, table))

    def mace_benchmark(self, *, library: Library, rounds: int = 50) -> None:
        """Let `scons benchmark` time every model of the library."""
        for choice in self.choices:
            step = benchmark_step(library.deployment, library.folder, choice, self.registry, rounds)
            self._env.Alias("benchmark", self._add_always(library, choice, step))

    def mace_package(self, *, name: str, libraries: Sequence[Library]) -> None:
        """Let `scons package` put libraries, headers and programs of all choices into builds/NAME.tar.gz."""
        nodes: set[Any] = set()
        for library in libraries:
            nodes.update(*library.variants.values())
        step = package_step(name, self._folder.path, sorted(Path(node.get_abspath()) for node in nodes))
        self._env.Alias("package", self._add(self._folder.path, [step], list(nodes)))

    def _add(self, folder: Path, steps: Iterable[Step], more: Sequence[Any] = ()) -> list[Any]:
        """Return the nodes of all products of the steps, which read the nodes in `more` as well."""
        products_of_steps: list[Any] = []
        for step in steps:
            sources = [self._file(folder / source) for source in step.sources]
            inputs = [self._env.fs.Entry(os.path.abspath(path)) for path in step.inputs]
            products = [self._file(folder / product) for product in step.products]
            read = [*sources, *inputs, *more, self._env.Value(step.signature)]
            nodes: list[Any] = self._env.Command(products, read, ACTION, MACE_STEP=step)
            if step.replaces:
                self._env.Precious(nodes)
            # What a step reads is as urgent as the step.
            for node in (*nodes, *read):
                node.attributes.mace_urgency = max(step.urgency, _find_urgency(node))
            products_of_steps += nodes
        return products_of_steps

    def _add_always(self, library: Library, choice: Choice, step: Step) -> list[Any]:
        """Add a step that runs whenever its product is asked for, whether or not it is up to date."""
        nodes = self._add(library.folder, [step], library.variants[choice.text])
        self._env.AlwaysBuild(nodes)
        return nodes

    def _summary(self, library: str, products: Sequence[Any], size_files: Mapping[str, Path]) -> Any:
        """Return an alias that ends a build with the paths and sizes of its products.

        Without it, SCons would print for every file that it is up to date.
        """
        env = self._env.Clone(MACE_STEP=summary_step(size_files))
        alias = env.Alias(f"library {library}", products, ACTION)
        env.AlwaysBuild(alias)
        return alias

    def _file(self, path: Path) -> Any:
        return self._env.fs.File(str(path))

    def _outside(self, path: Any) -> Any:
        """Return the node of a path that an SConscript names, relative to its folder."""
        return self._env.fs.Entry(path) if isinstance(path, str | os.PathLike) else path

    def _path_to_show(self, folder: Path) -> str:
        """Return a folder as users should read it: relative to where they called SCons, if it lies below."""
        top = self._env.fs.Top.get_abspath()
        return os.path.relpath(folder, top) if folder.is_relative_to(top) else str(folder)


def _perform(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    """Execute the step of a node; the one action that SCons knows."""
    step: Step = env["MACE_STEP"]
    try:
        env["MACE_FOLDER"].begin()
        step.run(_say)
    except BaseException as error:
        _remove_products(target)
        if not isinstance(error, Exception):
            raise
        sys.stdout.flush()
        return report_failure(error)  # the last resort: whatever it is, the user gets one message
    return 0


def _find_urgency(node: Any) -> int:
    """Return the urgency of the most urgent step that makes or reads a node."""
    return int(getattr(node.attributes, "mace_urgency", 0))


_find_next_candidate = SCons.Taskmaster.Taskmaster.find_next_candidate


def _find_most_urgent(taskmaster: Any) -> Any:
    """Return the node that SCons looks at next: of those at hand, one of the most urgent step.

    SCons keeps what became ready together in a set, so that the order changed from build to build, and often
    the slowest compilation began last, while the other processors had nothing left to do. Only the order
    depends on this method, which SCons does not document: it asks all sources of a node before it makes it.
    """
    taskmaster.candidates.sort(key=_find_urgency)
    return _find_next_candidate(taskmaster)


def _remove_products(nodes: Sequence[Any]) -> None:
    """Remove the files that a step which failed may have written in part, or not all of them.

    SCons remembers from what a product was made the last time that its step succeeded. Once the inputs are
    those again, it would take for that product whatever lies in its place.
    """
    for node in nodes:
        if isinstance(node, SCons.Node.FS.File):  # not the alias that ends a build
            with suppress(OSError):
                os.unlink(node.get_abspath())


def _write_signatures(write_all: Callable[[], None], folder: BuildFolder) -> None:
    """Let SCons write its signatures; end with one message where the disk does not take them."""
    try:
        write_all()
    except OSError as error:
        problem, remedy = f"cannot be written: {error.strerror}", "free some disk space, and build again"
        # SCons tries once more when Python ends, and what Python would then print helps nobody.
        sys.unraisablehook = lambda _: None
        sys.exit(report_failure(MaceError(f"builds={folder.path}", problem, remedy)))
    folder.finish()


def _announce(target: Sequence[Any], source: Sequence[Any], env: Any) -> str:
    step: Step = env["MACE_STEP"]
    return escape_controls(step.announcement, keep="")


ACTION = SCons.Action.Action(_perform, _announce)


def _say(text: str) -> None:
    sys.stdout.write(f"  {escape_controls(text)}\n")
    sys.stdout.flush()


def _print_any_character() -> None:
    """Let names that the terminal's encoding lacks be printed escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_checks(target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
    return print_checks([Path(node.get_abspath()) for node in source])
