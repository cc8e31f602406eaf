"""Measures tests, and tries faults on those that execute the changed function; several jobs at a time."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equivalence import has_equal_byte_code, prove_equal_objects
from faults import Fault

ROOT = Path(__file__).parents[1]

ANOTHER_PROCESS = ("", -1)
"""What a test "executes" that starts another Python process."""


@dataclass(frozen=True)
class Outcome:
    """Tells what became of a fault: "caught", "survived", "timeout" or "equivalent"; which test, or why."""

    fault: Fault
    result: str
    detail: str
    seconds: float


@dataclass(frozen=True)
class Stages:
    """A checkout that nobody changes, and for each area the files of tests in their turn, with marks."""

    checkout: Path
    folder: Path
    """Where jobs keep their copies."""
    files: dict[str, dict[str, str]]


class Job:
    """A copy of a checkout, which stays as it is, in which one job plants its faults and runs tests."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        shutil.copytree(checkout, folder, symlinks=True)
        self.checkout, self.folder, self._writes = checkout, folder.resolve(), 0
        folder = self.folder
        sources = [str(p) for p in (folder / "core/src", *sorted(folder.glob("*/*/src")))]
        # The copy's packages come before those that the environment has installed from this checkout.
        path = os.pathsep.join([*sources, os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {
            "PYTHONPATH": path.rstrip(os.pathsep),
            # The real models lie beside the checkout, where no test looks from a copy: all their tests would skip.
            "MACE_MODELS": os.environ.get("MACE_MODELS", str(ROOT.parent / "shared" / "models")),
            # Sets of texts have one order, so that a run can be repeated.
            "PYTHONHASHSEED": "0",
            # Jobs fill the processors; threads of each would wait for one another.
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment = environment
        self._server = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._server.stdin
        assert self._server.stdout
        self._requests, self._answers = self._server.stdin, self._server.stdout
        self._answers.readline()  # it is ready

    def run(self, **request: Any) -> dict[str, Any]:
        """Run tests in a process of their own."""
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def close(self) -> None:
        """End the process that forks."""
        self._requests.close()
        self._server.wait()
        self._answers.close()

    def plant(self, fault: Fault) -> None:
        """Write the changed file."""
        data = (self.checkout / fault.file).read_bytes()
        (self.folder / fault.file).write_bytes(fault.change_bytes(data))
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


@dataclass
class TestFile:
    """What a file of tests does without a fault."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of each test that passes."""
    executing: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """What is executed -> the tests that do."""
    imported: set[tuple[str, int]] = field(default_factory=set)
    """What the import of the file executes: all its tests may depend on it."""
    failing: list[str] = field(default_factory=list)

    def add(self, other: TestFile) -> None:
        """Add what other tests of the same file do."""
        self.seconds |= other.seconds
        self.imported |= other.imported
        self.failing += other.failing
        for place, tests in other.executing.items():
            self.executing[place] |= tests

    def tests_of(self, fault: Fault) -> set[str]:
        """Return the tests that execute what a fault changes.

        What a module computes when it is imported is used by its functions: these stand for it.
        """
        if not fault.file.endswith(".py"):
            return self.executing.get((fault.file, -1), set())
        if fault.function:
            return self.executing.get((fault.file, fault.function), set())
        called = [tests for (file, line), tests in self.executing.items() if file == fault.file and line >= 0]
        return set().union(*called)


PARTS = 8
"""Into how many parts the tests of a file are divided that has exhaustive ones: else all jobs wait for the last."""


def measure(job: Job, file: str, marks: str, part: tuple[int, int]) -> TestFile:
    """Run the tests of a file, of each n the i-th, and note what they execute."""
    measured = TestFile()
    answer = job.run(files=[file], marks=marks, measure=True, part=part)
    if answer["end"] != "finished":
        measured.failing.append(f"{file} ({answer['end']} in {answer['test']})")
    for event in answer["events"]:
        if "imported" in event:
            measured.imported = {(name, line) for name, line in event["imported"]}
        elif event["outcome"] == "failed":
            measured.failing.append(event["test"])
        elif event["outcome"] == "passed":
            measured.seconds[event["test"]] = event["seconds"]
            for name, line in event["executed"]:
                measured.executing[name, line].add(event["test"])
    return measured


class Trial:
    """Chooses the tests of a fault and runs them; learns which tests catch faults."""

    def __init__(self, stages: Stages, budget: float) -> None:
        self.stages, self.budget = stages, budget
        self.measured: dict[str, TestFile] = {}
        self.catches: Counter[tuple[str, str]] = Counter()

    def try_fault(self, fault: Fault, job: Job) -> Outcome:
        """Plant a fault and run tests until one of them catches it."""
        start = time.monotonic()
        job.plant(fault)
        try:
            result, detail = self._judge(fault, job)
        finally:
            job.restore(fault)
        return Outcome(fault, result, detail, time.monotonic() - start)

    def _judge(self, fault: Fault, job: Job) -> tuple[str, str]:
        """Run tests on a planted fault; one that survives may be proved to change nothing."""
        if fault.file.endswith(".py"):
            changed = (job.folder / fault.file).read_bytes()
            if has_equal_byte_code((job.checkout / fault.file).read_bytes(), changed):
                return "equivalent", "equal byte code"
            return self._run_tests(fault, job)
        result, detail = self._run_tests(fault, job)
        if result == "survived":
            # Last, because all kernels of a template compile for longer than the tests that catch most faults run.
            proof = prove_equal_objects(Path(fault.file).name, job.checkout, job.folder, job.environment)
            if proof:
                return "equivalent", proof
        return result, detail

    def _run_tests(self, fault: Fault, job: Job) -> tuple[str, str]:
        ran, left = 0, self.budget
        for group in self.groups(fault):
            order = []
            for test, seconds in group.tests:
                if left > 0:
                    order.append(test)
                    left -= seconds
            if not order:
                break
            # On a busy machine a test may get a tenth of its processor time.
            limits = {test: 60 + 20 * seconds for test, seconds in group.tests}
            answer = job.run(files=group.files, marks=group.marks, order=order, limits=limits)
            ran += len(order)
            failed = [event["test"] for event in answer["events"] if event.get("outcome") == "failed"]
            if failed or answer["end"] != "finished":
                test = failed[0] if failed else answer["test"] or group.files[0]
                self.catches[fault.file, test.partition("::")[0]] += 1
                return "timeout" if answer["end"] == "timeout" else "caught", test
        return "survived", f"{ran} tests" + (" (budget spent)" if left <= 0 else "")

    def groups(self, fault: Fault) -> Iterator[Group]:
        """Yield tests that one process runs: first few and fast, then the others.

        A fresh process costs a second: most faults are caught by the first group.
        """
        chosen = self.candidates(fault)
        for first, last in ((0, 3), (3, 12), (12, len(chosen))):
            for marks in sorted({c.marks for c in chosen[first:last]}):
                part = [c for c in chosen[first:last] if c.marks == marks]
                if part:
                    yield Group(
                        [*dict.fromkeys(c.file for c in part)],
                        marks,
                        [test for c in part for test in c.tests],
                    )

    def candidates(self, fault: Fault) -> list[Candidate]:
        """Return the files of tests that execute what a fault changes, in the order in which they run."""
        key = (fault.file, fault.function if fault.file.endswith(".py") else -1)
        module = ".".join(Path(fault.file).with_suffix("").parts[-2:])
        stem = Path(fault.file).name.partition(".")[0]
        chosen = []
        for number, (file, marks) in enumerate(self.stages.files[fault.area].items()):
            measured = self.measured[file]
            direct = measured.tests_of(fault)
            tests = measured.seconds
            if not direct and key not in measured.imported:
                # Another process may execute anything; what this one executes was seen.
                direct = measured.executing.get(ANOTHER_PROCESS, set())
                tests = {test: seconds for test, seconds in tests.items() if test in direct}
                distance = 3
            elif stem in Path(file).stem:
                distance = 0
            else:
                text = (self.stages.checkout / file).read_text(encoding="utf-8")
                distance = 1 if module in text else 2
            cost = sum(seconds for test, seconds in tests.items() if test in direct)
            # What the first test of a file computes may be kept for the next, so the others run as well: behind
            # the tests of all files that execute the change, because they may use up the budget.
            for is_direct in (True, False):
                order = [(test, seconds) for test, seconds in tests.items() if (test in direct) == is_direct]
                if order:
                    is_folder = file.split("/")[0] == "tests"
                    caught = self.catches[fault.file, file]
                    rank = (distance == 3, not is_direct, -caught, is_folder, distance, cost, number)
                    order.sort(key=lambda item: item[1])
                    chosen.append(Candidate(file, marks, order, rank))
        return sorted(chosen, key=lambda candidate: candidate.rank)


@dataclass(frozen=True)
class Candidate:
    """A file of tests that may catch a fault, and its tests in their order with seconds."""

    file: str
    marks: str
    tests: list[tuple[str, float]]
    rank: tuple[Any, ...]


@dataclass(frozen=True)
class Group:
    """Tests of some files that run in one process."""

    files: list[str]
    marks: str
    tests: list[tuple[str, float]]


def run_faults(
    stages: Stages, faults: Sequence[Fault], jobs: int, budget: float, tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Measure the tests, then try all faults; each is told as it ends."""
    trial, outcomes = Trial(stages, budget), []
    adding = threading.Lock()
    free: queue.Queue[Job] = queue.Queue()
    files = {file: marks for area in {f.area for f in faults} for file, marks in stages.files[area].items()}

    def start_job(number: int) -> None:
        free.put(Job(stages.checkout, stages.folder / f"job{number}"))

    def measure_part(file: str, part: tuple[int, int]) -> None:
        job = free.get()
        try:
            measured = measure(job, file, files[file], part)
        finally:
            free.put(job)
        with adding:
            trial.measured.setdefault(file, TestFile()).add(measured)

    def try_fault(fault: Fault) -> Outcome:
        job = free.get()
        try:
            return trial.try_fault(fault, job)
        finally:
            free.put(job)

    start = time.monotonic()
    # Files with exhaustive tests take the longest: the other jobs would wait for one that starts late.
    by_length = sorted(files, key=lambda file: "not exhaustive" in files[file])
    counts = [(file, 1 if "not exhaustive" in files[file] else PARTS) for file in by_length]
    parts = [(file, (i, count)) for file, count in counts for i in range(count)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start_job, range(jobs)))
        list(pool.map(lambda part: measure_part(*part), parts))
        print_measured(trial.measured, time.monotonic() - start)
        for outcome in pool.map(try_fault, faults):
            outcomes.append(outcome)
            tell(outcome)
    while not free.empty():
        free.get().close()
    return outcomes


def print_measured(measured: dict[str, TestFile], seconds: float) -> None:
    """Print how many tests there are, and which fail without a fault: those are of no use."""
    tests = sum(len(file.seconds) for file in measured.values())
    used = sum(sum(file.seconds.values()) for file in measured.values())
    line = f"{tests} tests of {len(measured)} files measured in {seconds:.0f} s: {used:.0f} s of processor time\n"
    sys.stdout.write(line)
    for file in measured.values():
        sys.stdout.writelines(f"fails without a fault: {test}\n" for test in file.failing)
    sys.stdout.flush()
