"""Makes the steps that SConscript rules add to a build: checks, benchmarks, packages, the summary."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from mace_core.deployment import Deployment
from mace_core.errors import MaceError
from mace_core.json_types import Json
from mace_core.registry import Choice, Registry
from mace_core.run.archive import pack
from mace_core.run.check import LibraryCheck
from mace_core.run.command import Say
from mace_core.run.files import write
from mace_core.run.library_size import read_size, show_size
from mace_core.step import Step
from mace_core.terminal import escape_controls

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")

FAILED = 2
"""The exit status of a check that did not pass."""


def check_step(check: LibraryCheck, registry: Registry) -> Step:
    """Return the step that validates a library and writes a row for each model."""
    choice = check.choice.text
    result = f"check/{choice}.json"

    def run(say: Say) -> None:
        rows = [row.as_json() for row in check.run(registry)]
        write(check.folder / result, json.dumps(rows, indent=1) + "\n")

    inputs = (check.labels,) if check.labels else ()
    return Step((result,), (), run, f"checking {check.deployment.library} for {choice}", inputs=inputs)


def print_checks(files: Sequence[Path]) -> int:
    """Print the rows of all libraries that were checked; return the exit status."""
    from mace_core.json_types import JsonObject
    from mace_core.run.results import Failure, Validation, result_of
    from mace_core.run.tables import show_validations

    results: list[Validation | Failure] = []
    for file in files:
        results += map(result_of, JsonObject.parse_list(file.read_text(encoding="utf-8"), file))
    sys.stdout.write(show_validations(results))
    return 0 if all(result.passed for result in results) else FAILED


def benchmark_step(
    deployment: Deployment, folder: Path, choice: Choice, registry: Registry, rounds: int
) -> Step:
    """Return the step that times every model of the library in a folder.

    Where an emulator executes the library, it counts what one run executes, as `mace benchmark` does.
    """
    result = f"benchmark/{choice.text}.json"

    def run(say: Say) -> None:
        from mace_core.run.check import benchmark_library
        from mace_core.run.count import count_library, find_counter, show_counts
        from mace_core.run.tables import show_timings

        rows: list[Json]
        if counter := find_counter(deployment, choice, registry):
            counts = count_library(deployment, folder, choice, registry, counter)
            text, rows = show_counts(counts, layers=True), [count.as_json() for count in counts]
        else:
            timings = benchmark_library(deployment, folder, choice, registry, rounds)
            text, rows = show_timings(timings), [asdict(timing) for timing in timings]
        sys.stdout.write(text)
        write(folder / result, json.dumps(rows, indent=1) + "\n")

    return Step((result,), (), run)


def package_step(name: str, folder: Path, files: Sequence[Path]) -> Step:
    """Return the step that packs files of a folder into NAME.tar.gz there."""
    if not PLAIN_NAME.fullmatch(name):
        raise MaceError(
            f"mace_package(name={name!r})",
            "not a file name",
            "use letters, digits, underscores, dots and hyphens",
        )
    archive = f"{name}.tar.gz"

    def run(say: Say) -> None:
        pack(folder / archive, folder, files)

    return Step((archive,), (), run, f"packing {archive}")


def summary_step(size_files: Mapping[str, Path]) -> Step:
    """Return the last step of a build, which prints where everything is, and what each library consists of.

    size_files: by the line that tells where a library is, the file with its bytes, which may be missing.
    """
    return Step((), (), partial(_tell, size_files))


def _tell(size_files: Mapping[str, Path], say: Say) -> None:
    for line, file in size_files.items():
        sys.stdout.write(f"{escape_controls(line)}\n")
        if size := read_size(file):
            sys.stdout.write(f"{escape_controls(show_size(size))}\n")
    sys.stdout.flush()


def describe_options(registry: Registry) -> str:
    """Return what `scons -h` prints."""
    abis = "\n".join(f"    {abi:16} {chains[0].abis[abi]}" for abi, chains in sorted(registry.abis().items()))
    targets = ", ".join(sorted(registry.targets))
    return f"""
scons target=ABI[+TARGET...][,...]   build every library in models/ for each choice (default: host)
scons target=... check               run the libraries on their validation data and print a table
scons target=... benchmark           time them
scons target=... package             pack them
  toolchain=NAME   use this toolchain
  builds=FOLDER    write everything into this folder
  fallback=no      fail if a node would run on a target that was not named

ABIs:
{abis}
targets: {targets}
"""
