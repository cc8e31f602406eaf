"""Checks whether a build will succeed: every stage for all models and choices, all faults together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from mace_core.api import GeneratedFiles
from mace_core.build_manifest import check_buildable
from mace_core.compilation import Compilation, CompiledModel, compile_graph
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.generation import encode
from mace_core.ir import Graph
from mace_core.job import Job, with_features
from mace_core.json_types import Json
from mace_core.pipeline import load, load_with
from mace_core.registry import Choice, Registry
from mace_core.run.compile import check_link, check_syntax
from mace_core.transforms import run_phases

T = TypeVar("T")


@dataclass(frozen=True)
class Computable:
    """Every node of a model has a target; nodes: how many each target takes, by its name.

    states: what sessions of the library keep from run to run, in words.
    """

    model: str
    target: str
    nodes: Mapping[str, int]
    states: tuple[str, ...] = ()

    def __str__(self) -> str:
        shares = (
            ", ".join(f"{count} on {target}" for target, count in self.nodes.items()) or "nothing to compute"
        )
        states = f"; sessions keep {', '.join(self.states)}" if self.states else ""
        count = sum(self.nodes.values())
        return f"{self.model}: {count} nodes, every one has a target for {self.target}: {shares}{states}"

    def as_json(self) -> Json:
        """Return it as JSON has it."""
        return {
            "kind": "computable",
            "model": self.model,
            "target": self.target,
            "nodes": dict(self.nodes),
            "states": list(self.states),
        }


@dataclass(frozen=True)
class Note:
    """Something that was decided in the user's place."""

    text: str

    def __str__(self) -> str:
        return f"note: {self.text}"

    def as_json(self) -> Json:
        """Return it as JSON has it."""
        return {"kind": "note", "text": self.text}


@dataclass(frozen=True)
class Ready:
    """A build for a target will meet no fault but those of the disk."""

    deployment: Path
    target: str
    toolchain: str
    libc: str

    def __str__(self) -> str:
        return (
            f"{self.deployment}: ready for target={self.target} with toolchain {self.toolchain} ({self.libc})"
        )

    def as_json(self) -> Json:
        """Return it as JSON has it."""
        return {"kind": "ready", "target": self.target, "toolchain": self.toolchain, "libc": self.libc}


Finding = Computable | Note | Ready


def check(
    deployment: Path, target: str, registry: Registry, no_fallback: bool = False, strict: bool = False
) -> Iterator[Finding]:
    """Yield what is fine and what was decided.

    MaceError with all faults together, and nothing that says "ready" then.

    target: "" for the deployment's `target_abis`. Each model is read, lowered and written as C in memory for
    each choice, and the compiler checks that C, so that every fault of a build is met but those of the disk.
    strict: keys of the file that have no effect are faults.
    """
    checker = _Checker(registry, no_fallback)
    parsed = checker.attempt(lambda: load_with(registry, deployment))
    # Without a target they are faults.
    unknown = list(_unknown_abis(parsed, registry)) if parsed and target else []
    target = target or (",".join(parsed.abis) if parsed else "")
    # A toolchain that is missing does not hide what is wrong with the file and its models.
    choices = checker.attempt(lambda: registry.select(target)) if target else None
    if parsed and strict:
        checker.faults.extend(f"{ignored}; remove the key" for ignored in parsed.ignored)
    if parsed:
        # The levels of `cpu_features` are asked for when targets are, in attempts of their own.
        yield from checker.models(parsed, [with_features(choice, parsed) for choice in choices or ()])
        notes = [note for note in parsed.notes if not (strict and note in parsed.ignored)]
        yield from map(Note, (*notes, *_absent_data(parsed), *unknown))
    if checker.faults:
        raise MaceError.of(dict.fromkeys(checker.faults))
    for choice in choices or ():
        yield Ready(deployment, choice.text, choice.toolchain.name, choice.compiler.libc)


@dataclass(frozen=True)
class _Checker:
    """Attempts of stages, and the faults that they met."""

    registry: Registry
    no_fallback: bool = False
    faults: list[str] = field(default_factory=list)

    def attempt(self, stage: Callable[[], T]) -> T | None:
        """Return what a stage gives; on failure record the error and return None."""
        try:
            return stage()
        except MaceError as error:
            self.faults.append(str(error))
            return None

    def models(self, parsed: Deployment, choices: Sequence[Choice]) -> Iterator[Finding]:
        """Read every model once, and check it for every choice."""
        graphs: dict[str, Graph] = {}
        for model in parsed.models:
            graph = self.attempt(partial(self._read, model))
            if graph is not None:
                graphs[model.name] = graph
        notes: dict[str, None] = {}
        for choice in choices:
            readable = [model for model in parsed.models if model.name in graphs]
            attempts = [self._try_compile(model, graphs, choice) for model in readable]
            compiled = [attempt for attempt in attempts if attempt]
            for model_compiled in compiled:
                notes.update(dict.fromkeys(f"{model_compiled.name}: {note}" for note in model_compiled.notes))
                yield _describe(model_compiled, choice)
            yield from self._encode(parsed, choice, compiled)
        if not choices:
            for name, graph in graphs.items():
                notes.update(dict.fromkeys(f"{name}: {note}" for note in graph.notes))
        yield from map(Note, notes)

    def _read(self, model: Model) -> Graph:
        return run_phases(load(model, self.registry), self.registry)

    def _try_compile(self, model: Model, graphs: Mapping[str, Graph], choice: Choice) -> CompiledModel | None:
        compilation = Compilation(choice, self.registry, self.no_fallback)
        return self.attempt(lambda: compile_graph(model, graphs[model.name], compilation))

    def _encode(
        self, parsed: Deployment, choice: Choice, compiled: Sequence[CompiledModel]
    ) -> Iterator[Note]:
        """Write the C in memory, and let the compiler check it.

        Yield what a device must have beside the library.
        """
        sources = (
            self.attempt(lambda: encode(Job(parsed, choice), compiled, self.registry)) if compiled else None
        )
        if sources is None:
            return
        for manifest in sources.manifests:
            for library, remedy in manifest.loads.items():
                yield Note(f"{manifest.name} looks for {library} when it runs; where it is missing: {remedy}")
        self.attempt(lambda: _compile(sources, choice))
        for abi in dict.fromkeys(manifest.abi for manifest in sources.manifests if manifest.abi):
            self.attempt(partial(self._compile_for, abi, sources))

    def _compile_for(self, abi: str, sources: GeneratedFiles) -> None:
        """Let the compiler of another ABI check what a part brings for it."""
        compiler = self.registry.find_toolchain(abi).compiler(abi)
        with tempfile.TemporaryDirectory(prefix="mace-check-") as folder:
            check_syntax(sources, compiler, Path(folder), abi)


def _describe(compiled: CompiledModel, choice: Choice) -> Computable:
    """Say which target computes how much of a model."""
    counts: dict[str, int] = {}
    for part in compiled.plan.parts:
        counts[part.target] = counts.get(part.target, 0) + len(part.nodes)
    return Computable(compiled.name, choice.text, counts, tuple(map(str, compiled.plan.states)))


def _compile(sources: GeneratedFiles, choice: Choice) -> None:
    """Let the compiler check the C of a library or project, and that it can link at all."""
    check_buildable(sources.manifests)
    with tempfile.TemporaryDirectory(prefix="mace-check-") as folder:
        check_syntax(sources, choice.compiler, Path(folder))
        # Those that are last build a C library first, which takes minutes.
        if choice.compiler.hosted and not choice.toolchain.last:
            check_link(choice.compiler, Path(folder))


def _unknown_abis(parsed: Deployment, registry: Registry) -> Iterator[str]:
    """Notes of names in `target_abis` that are none, which matter once the build is not told its target."""
    known = {*registry.abis(), *registry.targets}
    for text in parsed.abis:
        abi = text.partition("+")[0]
        if abi not in known:
            yield f"target_abis: no ABI {abi!r}; choose one of {', '.join(sorted(registry.abis()))}"


def _absent_data(parsed: Deployment) -> Iterator[str]:
    """Notes of validation data that is not there: a build does not need it, `mace validate` does."""
    for model in parsed.models:
        for port in (*model.inputs, *model.outputs):
            for file in port.data:
                if not os.path.isfile(file):
                    yield f"{model.name}: validation data of {port.name!r}: no such file: {file[:200]}"
