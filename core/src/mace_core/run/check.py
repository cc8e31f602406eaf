"""What `scons check`, `mace validate` and `scons benchmark` find out about the models of a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mace_core.deployment import Deployment
from mace_core.errors import MaceError
from mace_core.registry import Choice, Registry
from mace_core.run.built import Built
from mace_core.run.files import read_samples
from mace_core.run.results import Failure, Timing, Validation
from mace_core.run.validate import Question, validate

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
    built = Built.at(folder, choice.text, choice.runner)
    known = read_samples(str(labels)) if labels else None
    questions = [
        Question(built, model, registry, labels=known, least=min_accuracy) for model in deployment.models
    ]
    return attempt_each(questions, lambda question: [validate(question)])


def attempt_each(
    questions: Sequence[Question], work: Callable[[Question], Sequence[Result]]
) -> list[Result | Failure]:
    """Return the results of all models.

    A failure in place of a model that cannot be compared, so that the others go on.
    """
    results: list[Result | Failure] = []
    for question in questions:
        try:
            results += work(question)
        except MaceError as error:
            results.append(Failure(question.model.name, question.built.programs.name, str(error)))
    return results


def benchmark_library(deployment: Deployment, folder: Path, choice: Choice, rounds: int) -> list[Timing]:
    """Time every model, each layer apart."""
    built = Built.at(folder, choice.text, choice.runner)
    return [built.time(model.name, rounds=rounds, layers=True) for model in deployment.models]
