"""Compare what two versions of MACE generate: outputs bit for bit, arenas, sizes of libraries, files of projects.

    python tests/compare_outputs.py store FOLDER      # at the first version, once
    python tests/compare_outputs.py compare FOLDER    # at the second version: prints a table, fails where
    anything differs

`store` writes one folder for each case: the deployment file, the inputs of its models and what this version
makes of them.  `compare` reads nothing but that folder and calls nothing but `mace build`, `mace run` and
`mace convert`, so it works across versions whose Python interfaces differ.  The cases are the real models
beside the checkout (see `manifest.py`) and the vendor's MAX7800x networks.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]

LIBRARY, PROJECT = "library", "project"


@dataclass
class Result:
    """What a version made of a case.

    outputs: of each model by name, with a leading axis of samples.  arena, library: bytes; None of projects.
    files: SHA-256 of every file of a project by its path.  error: what the command line said where it
    refused.
    """

    outputs: dict[str, Arrays] = field(default_factory=dict)
    arena: int | None = None
    library: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Case:
    """A deployment file for one target, in a folder of its own."""

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def description(self) -> Mapping[str, Any]:
        """Kind, target and names of models, as they were stored."""
        content: Mapping[str, Any] = json.loads((self.folder / "case.json").read_text())
        return content

    @property
    def deployment(self) -> Path:
        """The deployment file."""
        return self.folder / "deployment.yml"

    def inputs(self, model: str) -> Arrays:
        """The stored inputs of a model by name, each with a leading axis of samples."""
        return read_arrays(self.folder / f"inputs_{model}.npz")

    def stored(self) -> Result:
        """What the first version made of the case."""
        result = Result(**json.loads((self.folder / "result.json").read_text()))
        for model in self.description["models"]:
            path = self.folder / f"outputs_{model}.npz"
            if path.exists():
                result.outputs[model] = read_arrays(path)
        return result

    def store(self, result: Result) -> None:
        """Write what this version made of the case."""
        for model, arrays in result.outputs.items():
            write_arrays(self.folder / f"outputs_{model}.npz", arrays)
        figures = {key: value for key, value in asdict(result).items() if key != "outputs"}
        (self.folder / "result.json").write_text(json.dumps(figures, indent=1))


def read_arrays(path: Path) -> Arrays:
    """Arrays of a file by the names that they had.

    A name of a tensor may hold slashes, that of a file's member may not.
    """
    with np.load(path) as members:
        return {str(name): members[f"array_{i}"] for i, name in enumerate(members["names"])}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays and their names."""
    numbered = {f"array_{i}": array for i, array in enumerate(arrays.values())}
    np.savez_compressed(path, names=np.array([*arrays]), **numbered)


class CommandError(Exception):
    """A command of MACE ended with an error."""


def mace(*arguments: object) -> None:
    """Run a command of the version that this interpreter belongs to.

    CommandError: it failed; with the last lines that it printed.
    """
    command = [str(Path(sys.executable).parent / "mace"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise CommandError(" ".join(said[-3:]))


def make(case: Case, builds: Path) -> Result:
    """Build or convert a case, run its models and measure what came of it."""
    try:
        if case.description["kind"] == PROJECT:
            return make_project(case, builds)
        build(case, builds)
        return measure(case, builds)
    except CommandError as error:
        return Result(error=str(error))


def build(case: Case, builds: Path) -> None:
    """Build the library."""
    mace("build", case.deployment, "--target", case.description["target"], "--builds", builds, "--jobs", 1)


def measure(case: Case, builds: Path) -> Result:
    """Run each model of a built library on its inputs."""
    archives = [path.stat().st_size for path in builds.rglob("lib*.a")]
    result = Result(arena=arena_bytes(builds), library=sum(archives))
    for model in case.description["models"]:
        result.outputs[model] = run(case, model, builds)
    return result


def run(case: Case, model: str, builds: Path) -> Arrays:
    """The outputs of a model."""
    target = case.description["target"]
    with tempfile.TemporaryDirectory() as folder:
        options: list[object] = []
        for i, (name, array) in enumerate(case.inputs(model).items()):
            path = Path(folder, f"input_{i}.npy")
            np.save(path, array)
            options += ["--input", f"{name}={path}"]
        outputs = Path(folder, "outputs")
        outputs.mkdir()
        mace(
            "run",
            case.deployment,
            "--target",
            target,
            "--builds",
            builds,
            "--model",
            model,
            *options,
            "--output",
            outputs,
        )
        return {
            path.relative_to(outputs).as_posix(): np.load(path) for path in sorted(outputs.rglob("*.npy"))
        }


def make_project(case: Case, builds: Path) -> Result:
    """Write the project; its files are the result."""
    mace("convert", case.deployment, "--target", case.description["target"], "--output", builds)
    files = {
        path.relative_to(builds).as_posix(): path for path in sorted(builds.rglob("*")) if path.is_file()
    }
    return Result(files={name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()})


def arena_bytes(builds: Path) -> int | None:
    """The sum of the models' arenas, as the report of the build has them wherever it lies."""
    results = [
        number
        for path in builds.rglob("*.json")
        for number in _numbers(json.loads(path.read_text()), "arena_bytes")
    ]
    return sum(results) if results else None


def _numbers(value: object, key: str) -> Iterator[int]:
    """All numbers under a key, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(key), int):
            yield value[key]
        for inner in value.values():
            yield from _numbers(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, key)


def difference(before: Result, after: Result) -> str:
    """How two results differ; empty where they are equal."""
    if before.error or after.error:
        return "" if before.error and after.error else f"refused: {before.error or after.error}"
    changed = {
        name
        for name in before.files.keys() | after.files.keys()
        if before.files.get(name) != after.files.get(name)
    }
    faults = [f"{len(changed)} files: {', '.join(sorted(changed)[:4])}"] if changed else []
    for model, outputs in before.outputs.items():
        found = after.outputs[model]
        if outputs.keys() != found.keys():
            faults.append(f"{model}: outputs {sorted(found)} instead of {sorted(outputs)}")
            continue
        faults += [
            f"{model}/{name}: {fault}"
            for name, array in outputs.items()
            if (fault := _array_difference(array, found[name]))
        ]
    return "; ".join(faults)


def _array_difference(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> str:
    """How two arrays differ, bit for bit: NaN of equal bits are equal, 0.0 and -0.0 are not."""
    if before.dtype != after.dtype or before.shape != after.shape:
        return f"{after.dtype}{list(after.shape)} instead of {before.dtype}{list(before.shape)}"
    if before.tobytes() == after.tobytes():
        return ""
    distance = np.abs(before.astype(np.float64) - after.astype(np.float64))
    return f"max difference {np.nanmax(distance):.3g} of a range of {np.ptp(before.astype(np.float64)):.3g}"


def compare(folder: Path, pattern: str) -> int:
    """Print a row for each case; the number of cases that differ."""
    rows = [("case", "result", "arena", "library")]
    different = 0
    for case in stored_cases(folder, pattern):
        before = case.stored()
        with tempfile.TemporaryDirectory() as builds:
            after = make(case, Path(builds))
        fault = difference(before, after)
        different += bool(fault)
        equal = f"{len(before.files)} files equal" if before.files else "equal"
        refused = f"refused by both: {before.error}" if before.error else ""
        rows.append(
            (
                case.name,
                fault or refused or equal,
                change(before.arena, after.arena),
                change(before.library, after.library),
            )
        )
        report("\t".join(rows[-1]))
    widths = [max(len(row[i]) for row in rows) for i in (0, 2, 3)]
    report(f"\n{'case':{widths[0]}}  {'arena bytes':>{widths[1]}}  {'library bytes':>{widths[2]}}  outputs")
    for name, outcome, arena, library in rows[1:]:
        report(f"{name:{widths[0]}}  {arena:>{widths[1]}}  {library:>{widths[2]}}  {outcome}")
    report(f"\n{different} of {len(rows) - 1} cases differ")
    return different


def change(before: int | None, after: int | None) -> str:
    """A figure before and after; once where it is the same."""
    if before == after:
        return "-" if before is None else f"{before:,}"
    return f"{before or 0:,} -> {after or 0:,}"


def stored_cases(folder: Path, pattern: str) -> list[Case]:
    """The cases of a folder whose names fit a pattern."""
    cases = [Case(path.parent) for path in sorted(folder.glob("*/result.json"))]
    return [case for case in cases if fnmatch.fnmatch(case.name, pattern)]


def store(folder: Path, pattern: str) -> int:
    """Make the cases, and what this version makes of them; cases that are stored already stay."""
    from stored_cases import write_cases

    folder.mkdir(parents=True, exist_ok=True)
    for case_folder in write_cases(folder, pattern):
        case = Case(case_folder)
        if (case_folder / "result.json").exists():
            continue
        with tempfile.TemporaryDirectory() as name:
            builds = Path(name)
            is_project = case.description["kind"] == PROJECT
            result = make(case, builds) if is_project else store_library(case, builds)
        case.store(result)
        figures = result.error or f"arena {result.arena}, library {result.library}, {len(result.files)} files"
        report(f"{case.name}: {figures}")
    return 0


def store_library(case: Case, builds: Path) -> Result:
    """The library's ports tell which inputs a model needs: so it is built before they are made."""
    from stored_cases import make_inputs

    try:
        build(case, builds)
    except CommandError as error:
        return Result(error=str(error))
    (built_report,) = builds.glob("*/model/*.json")
    for model, described in json.loads(built_report.read_text())["models"].items():
        write_arrays(case.folder / f"inputs_{model}.npz", make_inputs(model, described["inputs"]))
    shutil.copy(built_report, case.folder / "build_report.json")
    try:
        return measure(case, builds)
    except CommandError as error:
        return Result(error=str(error))


def report(text: str) -> None:
    """Print at once, as a run takes minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """The exit status: 1 where a case differs."""
    parser = argparse.ArgumentParser(description="Compare what two versions of MACE generate.")
    parser.add_argument("command", choices=("store", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*", help="pattern of the cases' names")
    options = parser.parse_args()
    action = store if options.command == "store" else compare
    return 1 if action(options.folder.resolve(), options.only) else 0


if __name__ == "__main__":
    sys.exit(main())
