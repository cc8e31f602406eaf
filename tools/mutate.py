"""Plants faults in the sources one at a time and tells which of them the tests miss.

uv run python tools/mutate.py --seed 1 --count 300 --jobs 2
uv run python tools/mutate.py --module core/src/mace_core/partition.py --count 20
uv run python tools/mutate.py --module core/src/mace_core/memory.py --tests core/tests/test_memory.py --count 99

Each fault is one small change: a comparison, a constant, a condition, an operator, or a statement left out. Texts,
annotations, decorators, `raise`, `assert` and keywords that only guard or describe (`zip(strict=)`, `field(repr=)`)
are left alone. All tests run once without a fault, which tells what fails anyway, how long each test takes and which
functions it executes. A fault is then tried on the tests that execute the changed function, or open the changed
template: those of the area first, the nearest and fastest of them first, until one fails. Tests that start another
Python process come last, for they may execute anything. A fault that survives has seen all of them, up to `--budget`
seconds of processor time.

Changes without effect are counted apart: those that `equivalent_faults.yaml` lists with a reason, which are not
tried, and survivors that compilers prove to change nothing (`equivalence.py`): the byte code of a module is equal, or
the object code of every kernel that a template makes.

Nothing in this checkout is changed: it is copied once at the start, and each job works on a copy of that. So edits
made during a run do not mix into it. Tests for which this machine lacks a tool or a framework are skipped as ever.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml
from fault_trials import Outcome, Stages, run_faults
from faults import Fault, choose

ROOT = Path(__file__).parents[1]

AREAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "core": (
        r"core/src/mace_core/(?!testing/|scaffold_files/|runtime/).*\.py",
        ("core/tests", "targets/cpu/tests"),
    ),
    "transforms": (r"plugins/standard/src/.*\.py", ("plugins/standard/tests",)),
    "cpu": (
        r"targets/cpu/src/.*\.(py|c\.in|h\.in)",
        (
            "targets/cpu/tests",
            *(
                f"targets/cpu/tests/test_{name}.py"
                for name in ("contract", "conv", "pool", "quantized_matmul", "kernel_work")
            ),
        ),
    ),
    "max78000": (
        r"(targets/max78000|frontends/ai8x)/src/.*\.py",
        (
            *("targets/max78000/tests", "targets/max78002/tests", "frontends/ai8x/tests"),
            *(
                "targets/max78000/tests/test_references.py",
                "targets/max78000/tests/test_simulator_references.py",
            ),
        ),
    ),
    "onnx": (
        r"frontends/onnx/src/.*\.py",
        ("frontends/onnx/tests", "frontends/onnx/tests/test_backend_cases.py"),
    ),
    "tflite": (r"frontends/tflite/src/.*\.py", ("frontends/tflite/tests",)),
    "caffe": (r"frontends/caffe/src/.*\.py", ("frontends/caffe/tests",)),
    "keras": (r"frontends/keras/src/.*\.py", ("frontends/keras/tests",)),
    "nnef": (r"frontends/nnef/src/.*\.py", ("frontends/nnef/tests",)),
    "tensorflow": (r"frontends/tensorflow/src/.*\.py", ("frontends/tensorflow/tests",)),
    "tflite-writer": (
        r"plugins/tflite-writer/src/.*\.py",
        ("plugins/tflite-writer/tests", "targets/ethosu/tests"),
    ),
    "ethosu": (r"targets/ethosu/src/.*\.py", ("targets/ethosu/tests",)),
    "mdla": (r"targets/mdla/src/.*\.py", ("targets/mdla/tests",)),
    "opencl": (r"targets/opencl/src/.*\.py", ("targets/opencl/tests",)),
}
"""Area -> the files in which faults are planted, and the folders and files of tests that run in turn.

The folder `tests` comes last. A file that is listed by itself runs with its exhaustive tests too.
"""

DEFAULT_AREAS = ("core", "transforms", "cpu", "max78000", "onnx", "tflite")

EXHAUSTIVE = " and not exhaustive"
"""The end of the marks that leaves out the exhaustive tests of folders."""


def copy_checkout(source: Path, folder: Path) -> None:
    """Copy what the tests need of a checkout into a folder that does not exist yet."""
    unneeded = shutil.ignore_patterns(".*", "__pycache__", "builds*", "*.egg-info")
    shutil.copytree(source, folder, ignore=unneeded, symlinks=True)


def choose_in_area(checkout: Path, area: str, module: str, seed: int, count: int) -> list[Fault]:
    """Choose so many faults of an area, or of one module: the same for the same seed and sources."""
    files = sorted(path.relative_to(checkout).as_posix() for path in checkout.glob("*/**/src/**/*.*"))
    names = [name for name in files if re.fullmatch(AREAS[area][0], name) and module in ("", name)]
    return choose(checkout, area, names, seed, count)


def stages_of(checkout: Path, area: str, near: bool) -> list[str]:
    """Return the folders and files of tests of an area that exist in the checkout."""
    stages = AREAS[area][1] if near else (*AREAS[area][1], "tests")
    return [stage for stage in stages if (checkout / stage).exists()]


def tests_of_stages(checkout: Path, stages: Sequence[str], marks: str) -> dict[str, str]:
    """Return the files of tests in the order of the stages, each with the marks that select its tests."""
    files: dict[str, str] = {}
    for stage in stages:
        whole = checkout / stage
        paths = [whole] if whole.is_file() else sorted(whole.glob("**/test_*.py"))
        for path in paths:
            name = path.relative_to(checkout).as_posix()
            files[name] = marks.replace(EXHAUSTIVE, "") if whole.is_file() else files.get(name, marks)
    return files


def read_equivalents(path: Path) -> list[dict[str, str]]:
    """Read the faults that change nothing: `file`, `line` (its text), `change` (optional) and `reason`."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or [] if path.exists() else []


def reason_of(fault: Fault, equivalents: Sequence[dict[str, str]]) -> str:
    """Return why a fault changes nothing; "" if nobody says so."""
    change = f"{fault.before} -> {fault.after}"
    for entry in equivalents:
        if (entry["file"], entry["line"]) == (fault.file, fault.text) and entry.get(
            "change", change
        ) == change:
            return entry["reason"]
    return ""


def print_outcome(outcome: Outcome) -> None:
    """Print one line."""
    fault = outcome.fault
    changed = f"{shorten(fault.before)} -> {shorten(fault.after)}"
    line = f"{outcome.result:10} {outcome.seconds:5.1f} s  {fault.file}:{fault.line}  {changed}  {outcome.detail}\n"
    sys.stdout.write(line)
    sys.stdout.flush()


def shorten(text: str) -> str:
    """Return a text on one line, cut to what identifies it."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."


def print_summary(areas: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Print what survived, what changes nothing, and the shares of the areas, in which the latter does not count."""
    for result, name in (("equivalent", "without effect"), ("survived", "survivors")):
        listed = [outcome for outcome in outcomes if outcome.result == result]
        sys.stdout.write(f"\n{len(listed)} {name}\n")
        for outcome in listed:
            print_outcome(outcome)
    for area in (*areas, "total"):
        own = [o for o in outcomes if area in (o.fault.area, "total")]
        equivalent = sum(outcome.result == "equivalent" for outcome in own)
        survived = sum(outcome.result == "survived" for outcome in own)
        counted = len(own) - equivalent
        share = 100 * (counted - survived) / max(1, counted)
        sys.stdout.write(
            f"{area:14} {counted - survived:4} of {counted:4} caught  {share:5.1f} %  {equivalent} without effect\n"
        )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60, help="faults in all, shared by the areas")
    parser.add_argument(
        "--area", choices=(*AREAS, "all"), action="append", help=f"default: {', '.join(DEFAULT_AREAS)}"
    )
    parser.add_argument("--module", default="", help="plant faults in this file alone")
    parser.add_argument("--jobs", type=int, default=2)
    # Slow tests as well: those of kernels are slow, for they start a compiler.
    parser.add_argument("--marks", default=f"not fuzz and not emulator and not wheels{EXHAUSTIVE}")
    parser.add_argument("--near", action="store_true", help="leave out the folder tests/")
    parser.add_argument("--tests", action="append", help="run this file or folder of tests only")
    parser.add_argument(
        "--budget",
        type=float,
        default=200,
        help="seconds of processor time of the tests that a fault may see",
    )
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    asked = parser.parse_args()
    asked.area = list(AREAS) if "all" in (asked.area or ()) else asked.area or list(DEFAULT_AREAS)
    if asked.module:
        asked.area = [area for area in AREAS if re.fullmatch(AREAS[area][0], asked.module)]
        if not asked.area:
            parser.error(f"{asked.module}: no area has this file; areas are {', '.join(AREAS)}")
    return asked


def main() -> int:
    """Plant faults as the command line says; 0 whatever survives, as a person judges what is left."""
    asked = parse_arguments()
    count = -(-asked.count // len(asked.area))
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
        checkout = Path(temporary) / "checkout"
        copy_checkout(ROOT, checkout)
        faults = [
            f for area in asked.area for f in choose_in_area(checkout, area, asked.module, asked.seed, count)
        ]
        equivalents = read_equivalents(checkout / "tools/equivalent_faults.yaml")
        reasons = {fault: reason_of(fault, equivalents) for fault in faults}
        outcomes = [Outcome(fault, "equivalent", reason, 0) for fault, reason in reasons.items() if reason]
        tried = [fault for fault in faults if not reasons[fault]]
        stages = {area: asked.tests or stages_of(checkout, area, asked.near) for area in asked.area}
        plan = Stages(
            checkout,
            Path(temporary),
            {a: tests_of_stages(checkout, s, asked.marks) for a, s in stages.items()},
        )
        outcomes += run_faults(plan, tried, asked.jobs, asked.budget, print_outcome)
    print_summary(asked.area, outcomes)
    if asked.json:
        asked.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
