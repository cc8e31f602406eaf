"""Validates and times all models of a library: `scons check`, `mace validate` and `scons benchmark`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from mace_core.deployment import Deployment
from mace_core.errors import MaceError
from mace_core.registry import Choice, Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.files import read_samples
from mace_core.run.framework_process import FrameworkProcesses
from mace_core.run.results import Failure, Timing, Validation
from mace_core.run.validate import validate
from mace_core.run.validation_job import ValidationJob

Result = TypeVar("Result")


@dataclass(frozen=True)
class LibraryCheck:
    """Says which library to validate, and against what.

    folder: the folder of the built library.
    labels: a file with the right class of each sample; None not to measure accuracy.
    min_accuracy: the share of right classes that a model must reach to pass.
    """

    deployment: Deployment
    folder: Path
    choice: Choice
    labels: Path | None = None
    min_accuracy: float = 0.0

    def run(self, registry: Registry) -> list[Validation | Failure]:
        """Validate every model: similarity, accuracy if there are labels, latency, sizes."""
        runner = registry.find_runner(self.choice, self.deployment.models)
        built = BuiltLibrary.open(self.folder, self.choice.text, runner)
        labels = read_samples(str(self.labels)) if self.labels else None
        job = partial(
            ValidationJob,
            built,
            registry=registry,
            labels=labels,
            min_accuracy=self.min_accuracy,
            processes=FrameworkProcesses(),
        )
        jobs = [job(model) for model in self.deployment.models]
        return attempt_each(jobs, lambda job: [validate(job)])


def attempt_each(
    jobs: Sequence[ValidationJob], validate_model: Callable[[ValidationJob], Sequence[Result]]
) -> list[Result | Failure]:
    """Return the results of all models; a model that cannot be compared becomes a Failure."""
    results: list[Result | Failure] = []
    for job in jobs:
        try:
            results += validate_model(job)
        except MaceError as error:
            results.append(Failure(job.model.name, job.built.programs.name, str(error)))
    return results


def benchmark_library(
    deployment: Deployment, folder: Path, choice: Choice, registry: Registry, rounds: int
) -> list[Timing]:
    """Time every model, and each of its layers."""
    built = BuiltLibrary.open(folder, choice.text, registry.find_runner(choice, deployment.models))
    return [built.time(model.name, rounds=rounds, layers=True) for model in deployment.models]
