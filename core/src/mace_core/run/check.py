"""What `scons check`, `mace validate` and `scons benchmark` find out about the models of a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mace_core.deployment import Deployment
from mace_core.errors import MaceError
from mace_core.registry import Choice, Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.files import read_samples
from mace_core.run.results import Failure, Timing, Validation
from mace_core.run.validate import ValidationJob, validate

Result = TypeVar("Result")


def check_library(
    library: tuple[Deployment, Registry],
    folder: Path,
    choice: Choice,
    labels: Path | None,
    min_accuracy: float,
) -> list[Validation | Failure]:
    """Validate every model: similarity to the expected outputs, accuracy where there are labels, latency, sizes."""
    deployment, registry = library
    runner = registry.find_runner(choice, deployment.models)
    built = BuiltLibrary.at(folder, choice.text, runner)
    known = read_samples(str(labels)) if labels else None
    jobs = [
        ValidationJob(built, model, registry, labels=known, least=min_accuracy) for model in deployment.models
    ]
    return attempt_each(jobs, lambda job: [validate(job)])


def attempt_each(
    jobs: Sequence[ValidationJob], work: Callable[[ValidationJob], Sequence[Result]]
) -> list[Result | Failure]:
    """Return the results of all models.

    A failure in place of a model that cannot be compared, so that the others go on.
    """
    results: list[Result | Failure] = []
    for job in jobs:
        try:
            results += work(job)
        except MaceError as error:
            results.append(Failure(job.model.name, job.built.programs.name, str(error)))
    return results


def benchmark_library(
    library: tuple[Deployment, Registry], folder: Path, choice: Choice, rounds: int
) -> list[Timing]:
    """Time every model, each layer apart."""
    deployment, registry = library
    built = BuiltLibrary.at(folder, choice.text, registry.find_runner(choice, deployment.models))
    return [built.time(model.name, rounds=rounds, layers=True) for model in deployment.models]
