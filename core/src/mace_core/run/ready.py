"""Will a build succeed: every stage that can be reached, for all models and choices, with all faults together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from mace_core.api import Sources
from mace_core.deployment import Deployment, Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.memory import arena
from mace_core.partition import split
from mace_core.pipeline import isas, load, load_with, lower_model, normalise, project
from mace_core.registry import Choice, Registry
from mace_core.run.compile import check_link, check_syntax

T = TypeVar("T")


def check(deployment: Path, target: str, registry: Registry) -> Iterator[str]:
    """Lines of what is fine and what was decided; MaceError with all faults together, and no line that says "ready" then.

    target: "" for the deployment's `target_abis`. Each model is read, lowered and written as C in memory for each choice, and the
    compiler checks that C, so that every fault of a build is met but those of the disk.
    """
    work = _Work(registry)
    parsed = work.attempt(lambda: load_with(registry, deployment))
    target = target or (",".join(parsed.abis) if parsed else "")
    # A toolchain that is missing does not hide what is wrong with the file and its models.
    choices = work.attempt(lambda: registry.select(target)) if target else None
    if parsed:
        yield from work.models(parsed, choices or ())
        yield from (f"note: {note}" for note in (*parsed.notes, *_absent_data(parsed)))
    if work.faults:
        raise MaceError.of(dict.fromkeys(work.faults))
    for choice in choices or ():
        yield f"{deployment}: ready for target={choice.text} with toolchain {choice.toolchain.name} ({choice.compiler.libc})"


@dataclass(frozen=True)
class _Work:
    """Attempts of stages, and the faults that they met."""

    registry: Registry
    faults: list[str] = field(default_factory=list)

    def attempt(self, stage: Callable[[], T]) -> T | None:
        """Return what a stage gives; on failure record the error and return None."""
        try:
            return stage()
        except MaceError as error:
            self.faults.append(str(error))
            return None

    def models(self, parsed: Deployment, choices: Sequence[Choice]) -> Iterator[str]:
        """Check every model for every choice."""
        graphs: dict[str, Graph] = {}
        if not choices or any(not choice.project for choice in choices):
            for model in parsed.models:
                graph = self.attempt(lambda model=model: normalise(load(model, self.registry), self.registry))  # type: ignore[misc]
                if graph is not None:
                    graphs[model.name] = graph
                    yield from (f"note: {model.name}: {note}" for note in graph.notes)
        for choice in choices:
            yield from self._projects(parsed, choice) if choice.project else self._library(parsed, choice, graphs)

    def _library(self, parsed: Deployment, choice: Choice, graphs: Mapping[str, Graph]) -> Iterator[str]:
        placed = []
        for model in parsed.models:
            graph = graphs.get(model.name)
            made = graph and self.attempt(lambda model=model, graph=graph: self._placed(model, graph, choice))  # type: ignore[misc]
            if graph and made:
                placed.append(made)
                yield f"{model.name}: {len(graph.nodes)} nodes, every one has a target for {choice.text}"
        if placed:
            sources = self.attempt(lambda: code.library(parsed.library, placed, isas(choice, self.registry)))
            if sources:
                self.attempt(lambda: _compile(sources, choice, ()))

    def _placed(self, model: Model, graph: Graph, choice: Choice) -> code.Placed:
        parts = split(graph, self.registry.targets_for(choice, model.runtimes))
        program = lower_model(model, graph, parts, self.registry).program
        return code.Placed(program, arena(program))

    def _projects(self, parsed: Deployment, choice: Choice) -> Iterator[str]:
        target = choice.project
        assert target is not None
        for model in parsed.models:
            sources = self.attempt(lambda model=model: project(model, choice, self.registry))  # type: ignore[misc]
            if sources is None:
                continue
            notes = sources.report.get("notes", ())
            assert isinstance(notes, Sequence)
            yield from (f"note: {model.name}: {note}" for note in notes)
            includes = tuple(f"-I{include}" for include in target.layout(model).includes)
            self.attempt(lambda sources=sources, includes=includes: _compile(sources, choice, includes))  # type: ignore[misc]
            yield f"{model.name}: {target.name} computes it"


def _compile(sources: Sources, choice: Choice, flags: tuple[str, ...]) -> None:
    """Let the compiler check the C of a library or project, and that it can link at all."""
    with tempfile.TemporaryDirectory(prefix="mace-check-") as folder:
        check_syntax(sources, choice.compiler, Path(folder), flags)
        if choice.compiler.hosted and not choice.toolchain.last:  # those that are last build a C library first, which takes minutes
            check_link(choice.compiler, Path(folder))


def _absent_data(parsed: Deployment) -> Iterator[str]:
    """Notes of validation data that is not there: a build does not need it, `mace validate` does."""
    for model in parsed.models:
        for port in (*model.inputs, *model.outputs):
            for file in port.data:
                if not os.path.isfile(file):
                    yield f"{model.name}: validation data of {port.name!r}: no such file: {file[:200]}"
