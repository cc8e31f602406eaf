"""The command `mace benchmark`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mace_core.cli_options import (
    AGAINST_FRAMEWORK,
    BUILDS,
    DEVICE,
    FILE,
    JSON,
    OPERATORS,
    ROUNDS,
    TARGET,
    THREADS,
    exit_on_error,
    print_result,
)
from mace_core.errors import MaceError

if TYPE_CHECKING:
    from mace_core.commands import BuiltModels


@click.command()
@FILE
@TARGET
@BUILDS
@THREADS
@JSON
@ROUNDS
@OPERATORS
@click.option("--layers", is_flag=True, help="Time every layer too.")
@AGAINST_FRAMEWORK
@DEVICE
@exit_on_error
def benchmark(
    deployment: Path,
    target: str,
    builds: Path,
    threads: int,
    as_json: bool,
    rounds: int,
    operators: bool,
    layers: bool,
    against_framework: bool,
    device: str,
) -> None:
    """Time the models of a built library, or count what they execute where only an emulator runs them."""
    from mace_core.commands import BuiltModels, benchmark_models
    from mace_core.run.count import count_library, find_counter, show_counts
    from mace_core.run.tables import show_timings

    models = BuiltModels(deployment, target, builds, threads=threads, device=device)
    if device and (operators or against_framework):
        problem = "is for whole runs of the library"
        raise MaceError(f"--device {device}", problem, "leave out --op and --against-framework, or it")
    if operators:
        from mace_core.run.operators import show_operators, time_operators

        times = time_operators(models, rounds)
        print_result([time.as_json() for time in times], show_operators(times), as_json)
        return
    if against_framework:
        _benchmark_against_framework(models, rounds, as_json)
        return
    parsed, choice, registry = models.open()
    counter = find_counter(parsed, choice, registry)
    if counter:
        counts = count_library(parsed, builds / parsed.library, choice, registry, counter)
        print_result([count.as_json() for count in counts], show_counts(counts, layers), as_json)
        return
    timings = benchmark_models(models, rounds, layers)
    print_result([asdict(timing) for timing in timings], show_timings(timings), as_json)


def _benchmark_against_framework(models: BuiltModels, rounds: int, as_json: bool) -> None:
    """Print the times of all models that can be compared, then raise the problems of the others."""
    from mace_core.commands import compare_speeds
    from mace_core.run.results import Failure
    from mace_core.run.tables import show_timings

    results = compare_speeds(models, rounds)
    problems = [result.problem for result in results if isinstance(result, Failure)]
    timings = [result for result in results if not isinstance(result, Failure)]
    print_result([asdict(result) for result in results], show_timings(timings) if timings else "", as_json)
    if problems:
        # A library that is not built is one problem of all its models.
        raise MaceError.of(list(dict.fromkeys(problems)))
