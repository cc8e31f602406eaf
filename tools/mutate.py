"""Plants faults in the sources one at a time and tells which of them the tests miss.

uv run python tools/mutate.py --seed 1 --count 60 --jobs 2
uv run python tools/mutate.py --module core/src/mace_core/partition.py --count 20

Each fault is one small change: a comparison, a constant, a condition, an operator, or a statement left out. The
tests that lie nearest to the changed file run first, so that most faults cost seconds; a fault that survives
has seen all stages of its area. Nothing in this checkout is changed: it is copied once at the start, and each job
works on a copy of that. So edits made during a run do not mix into it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

AREAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "core": (
        r"core/src/mace_core/(?!testing/|scaffold_files/|runtime/).*\.py",
        ("core/tests", "targets/cpu/tests"),
    ),
    "transforms": (r"plugins/standard/src/.*\.py", ("plugins/standard/tests",)),
    "cpu": (
        r"targets/cpu/src/.*\.(py|c\.in|h\.in)",
        ("targets/cpu/tests", "targets/cpu/tests/test_contract.py"),
    ),
    "max78000": (
        r"(targets/max78000|frontends/ai8x)/src/.*\.py",
        (
            *("targets/max78000/tests", "targets/max78002/tests", "frontends/ai8x/tests"),
            *("targets/max78000/tests/test_references.py", "targets/max78000/tests/test_simulator_references.py"),
        ),
    ),
    "caffe": (r"frontends/caffe/src/.*\.py", ("frontends/caffe/tests",)),
    "onnx": (
        r"frontends/onnx/src/.*\.py",
        ("frontends/onnx/tests", "frontends/onnx/tests/test_backend_cases.py"),
    ),
    "tensorflow": (r"frontends/tensorflow/src/.*\.py", ("frontends/tensorflow/tests",)),
    "tflite": (r"frontends/tflite/src/.*\.py", ("frontends/tflite/tests",)),
}
"""Area -> the files in which faults are planted, and the folders and files of tests that run in turn.

The folder `tests` comes last. A file that is listed by itself runs with its exhaustive tests too.
"""

EXHAUSTIVE = " and not exhaustive"
"""The end of the marks that leaves out the exhaustive tests of folders."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
C_CHANGES = (
    *((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == ")),
    *((" + ", " - "), (" - ", " + "), (" * ", " + "), (" && ", " || "), (" || ", " && "), ("++", "--")),
)
NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.%])")

IGNORED_C = (
    re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|/\*.*?\*/", re.DOTALL),
    re.compile(r"//[^\n]*|^ *#[^\n]*", re.MULTILINE),
)

Change = tuple[int, int, str]
"""Bytes [start, end) of a file, and what stands there instead."""


@dataclass(frozen=True)
class Fault:
    """Describes one change of one file."""

    area: str
    file: str
    line: int
    before: str
    after: str
    change: Change


@dataclass(frozen=True)
class Outcome:
    """Tells what became of a fault: "caught", "survived" or "timeout", and the test that caught it."""

    fault: Fault
    result: str
    test: str
    seconds: float


def find_changes(path: Path) -> list[Change]:
    """Return every change that can be made to a file, in its order."""
    data = path.read_bytes()
    return sorted(set(python_changes(data) if path.suffix == ".py" else c_changes(data)))


def python_changes(data: bytes) -> Iterator[Change]:
    """Yield changes of a Python module; texts, annotations and messages of errors are left alone."""
    tree = ast.parse(data)
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    skipped = {id(inner) for node in ast.walk(tree) for part in untouched(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.expr | ast.stmt):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            yield from ((start, end, text) for text in replacements(node))


def untouched(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node whose change no test is expected to see."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        yield node
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield node


def replacements(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield what may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right) if type(op) in COMPARISONS:
            yield f"({ast.unparse(ast.Compare(left, [COMPARISONS[type(op)]()], right))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield f"({ast.unparse(ast.BinOp(left, OPERATORS[type(op)](), right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue():
            yield "pass"


def c_changes(data: bytes) -> Iterator[Change]:
    """Yield changes of a template of C; comments, Jinja's directives and the preprocessor's are left alone."""
    text = data.decode()
    for left_alone in IGNORED_C:
        # Blanks of the same length keep the positions of what is left.
        text = left_alone.sub(lambda found: " " * len(found.group().encode()), text)
    for old, new in C_CHANGES:
        for found in re.finditer(re.escape(old), text):
            yield found.start(), found.end(), new
    for found in NUMBER.finditer(text):
        yield found.start(), found.end(), str(int(found.group()) + 1)


def copy_checkout(source: Path, folder: Path) -> None:
    """Copy what the tests need of a checkout into a folder that does not exist yet."""
    unneeded = shutil.ignore_patterns(".*", "__pycache__", "builds*", "*.egg-info")
    shutil.copytree(source, folder, ignore=unneeded, symlinks=True)


def choose(checkout: Path, area: str, module: str, seed: int, count: int) -> list[Fault]:
    """Choose so many faults of an area, or of one module: the same for the same seed and sources."""
    files = sorted(path.relative_to(checkout).as_posix() for path in checkout.glob("*/**/src/**/*.*"))
    names = [name for name in files if re.fullmatch(AREAS[area][0], name) and module in ("", name)]
    every = [(name, change) for name in names for change in find_changes(checkout / name)]
    chosen = random.Random(f"{seed} {area}").sample(every, min(count, len(every)))  # noqa: S311  # repeatable
    return [describe(checkout, area, name, change) for name, change in chosen]


def describe(checkout: Path, area: str, name: str, change: Change) -> Fault:
    """Return a fault with the place and the texts that a reader needs."""
    data = (checkout / name).read_bytes()
    start, end, text = change
    return Fault(area, name, data[:start].count(b"\n") + 1, data[start:end].decode(), text, change)


class Workplace:
    """A copy of a checkout, which stays as it is, in which one job plants its faults."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout, self.folder, self._writes = checkout, folder, 0
        copy_checkout(checkout, folder)
        sources = [str(p) for p in (folder / "core/src", *sorted(folder.glob("*/*/src")))]
        # The copy's packages come before those that the environment has installed from this checkout.
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*sources, os.environ.get("PYTHONPATH", "")]),
            # The real models lie beside the checkout, where no test looks from a copy: all their tests would skip.
            "MACE_MODELS": os.environ.get("MACE_MODELS", str(ROOT.parent / "shared" / "models")),
        }

    def test(self, words: Sequence[str], seconds: float) -> tuple[int, str]:
        """Run tests; the exit status, 124 where they take too long, and what pytest says."""
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *words]
        try:
            done = subprocess.run(  # noqa: S603  # our own tests
                command,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, ""
        return done.returncode, done.stdout

    def plant(self, fault: Fault) -> None:
        """Write the changed file."""
        start, end, text = fault.change
        data = (self.checkout / fault.file).read_bytes()
        (self.folder / fault.file).write_bytes(data[:start] + text.encode() + data[end:])
        self._date_anew(fault)

    def restore(self, fault: Fault) -> None:
        """Write the file as it was."""
        shutil.copyfile(self.checkout / fault.file, self.folder / fault.file)
        self._date_anew(fault)

    def _date_anew(self, fault: Fault) -> None:
        """Give the file a time that it never had.

        Python knows a file by its size and the second of its change, wherever it keeps what it compiled.
        """
        self._writes += 1
        stamp = 1_000_000_000 + 10 * self._writes
        os.utime(self.folder / fault.file, (stamp, stamp))


class Trial:
    """Runs the stages of tests of a fault; knows which tests fail without any."""

    def __init__(self, marks: str, near: bool) -> None:
        self.marks, self.near = marks, near
        self.failing: dict[str, list[str]] = {}
        self.limits: dict[str, float] = {}

    def measure(self, stage: str, workplace: Workplace) -> None:
        """Run a stage without a fault: what fails here is of no use, and how long it takes is the limit."""
        start = time.monotonic()
        _, said = workplace.test([stage, "-m", self.marks_of(stage)], 3600)
        self.failing[stage] = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        self.limits[stage] = 60 + 4 * (time.monotonic() - start)

    def try_fault(self, fault: Fault, workplace: Workplace) -> Outcome:
        """Plant a fault and run the tests until one of them catches it."""
        start = time.monotonic()
        workplace.plant(fault)
        try:
            for stage, words in self.stages(fault, workplace):
                skipped = [word for name in self.failing[stage] for word in ("--deselect", name)]
                options = ["-m", self.marks_of(stage), *skipped]
                status, said = workplace.test(["-x", *words, *options], self.limits[stage])
                if status not in (0, 5):  # 5: no test was selected
                    caught = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
                    name = caught.group(1) if caught else stage
                    return Outcome(
                        fault, "timeout" if status == 124 else "caught", name, time.monotonic() - start
                    )
            return Outcome(fault, "survived", "", time.monotonic() - start)
        finally:
            workplace.restore(fault)

    def marks_of(self, stage: str) -> str:
        """Return the expression that selects the tests of a stage."""
        return self.marks.replace(EXHAUSTIVE, "") if stage.endswith(".py") else self.marks

    def stages(self, fault: Fault, workplace: Workplace) -> Iterator[tuple[str, list[str]]]:
        """Yield stages: the tests that bear the module's name, those that import it, then all of the area."""
        whole = stages_of(workplace.checkout, fault.area, self.near)
        stem = Path(fault.file).name.partition(".")[0]
        dotted = ".".join(Path(fault.file).with_suffix("").parts[-2:])
        own = sorted(p for p in (workplace.folder / whole[0]).glob("**/test_*.py"))
        named = [str(p.relative_to(workplace.folder)) for p in own if stem in p.stem]
        importing = [
            str(p.relative_to(workplace.folder)) for p in own if dotted in p.read_text(encoding="utf-8")
        ]
        for near in (named, [name for name in importing if name not in named]):
            if near:
                yield whole[0], near
        yield from ((stage, [stage]) for stage in whole)


def stages_of(checkout: Path, area: str, near: bool) -> list[str]:
    """Return the folders and files of tests of an area that exist in the checkout."""
    stages = AREAS[area][1] if near else (*AREAS[area][1], "tests")
    return [stage for stage in stages if (checkout / stage).exists()]


def run(checkout: Path, faults: Sequence[Fault], jobs: int, trial: Trial) -> list[Outcome]:
    """Try faults of a checkout that nobody changes, several at a time, and print each as it ends."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
        free: queue.Queue[Workplace] = queue.Queue()
        for number in range(jobs):
            free.put(Workplace(checkout, Path(temporary) / str(number)))

        def measure(stage: str) -> None:
            workplace = free.get()
            try:
                trial.measure(stage, workplace)
            finally:
                free.put(workplace)

        def try_fault(fault: Fault) -> Outcome:
            workplace = free.get()
            try:
                return trial.try_fault(fault, workplace)
            finally:
                free.put(workplace)

        with ThreadPoolExecutor(jobs) as pool:
            areas = {fault.area for fault in faults}
            stages = sorted({stage for area in areas for stage in stages_of(checkout, area, trial.near)})
            list(pool.map(measure, stages))
            for outcome in pool.map(try_fault, faults):
                outcomes.append(outcome)
                print_outcome(outcome)
    return outcomes


def print_outcome(outcome: Outcome) -> None:
    """Print one line."""
    fault = outcome.fault
    place = f"{fault.file}:{fault.line}"
    changed = f"{shorten(fault.before)} -> {shorten(fault.after)}"
    sys.stdout.write(f"{outcome.result:8} {outcome.seconds:5.0f} s  {place}  {changed}  {outcome.test}\n")
    sys.stdout.flush()


def shorten(text: str) -> str:
    """Return a text on one line, cut to what identifies it."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."


def main() -> int:
    """Read the command line; 0 whatever survives, as a person judges what is left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60, help="faults in all, shared by the areas")
    parser.add_argument("--area", choices=AREAS, action="append", help="default: all")
    parser.add_argument("--module", default="", help="plant faults in this file alone")
    parser.add_argument("--jobs", type=int, default=2)
    # Slow tests as well: those of kernels are slow, for they start a compiler.
    parser.add_argument("--marks", default=f"not fuzz and not emulator and not wheels{EXHAUSTIVE}")
    parser.add_argument(
        "--near", action="store_true", help="leave out the folder tests/, which takes minutes"
    )
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    asked = parser.parse_args()
    areas = asked.area or list(AREAS)
    if asked.module:
        areas = [area for area in areas if re.fullmatch(AREAS[area][0], asked.module)]
        if not areas:
            parser.error(f"{asked.module}: no area has this file; areas are {', '.join(AREAS)}")
    count = -(-asked.count // len(areas))
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
        checkout = Path(temporary) / "checkout"
        copy_checkout(ROOT, checkout)
        faults = [f for area in areas for f in choose(checkout, area, asked.module, asked.seed, count)]
        outcomes = run(checkout, faults, asked.jobs, Trial(asked.marks, asked.near))
    for area in areas:
        own = [outcome for outcome in outcomes if outcome.fault.area == area]
        caught = sum(outcome.result != "survived" for outcome in own)
        sys.stdout.write(f"{area}: {caught} of {len(own)} caught\n")
    if asked.json:
        asked.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
