"""Runs tests in forked processes: the modules that take long to import are imported once.

Reads requests from its standard input and answers on its standard output, one JSON object a line. Nothing of this
project is imported before the fork, so each run of tests reads the sources as they are at that moment.

A request: `files` of tests, `marks` that select tests in them, and either `measure` (true: run all, and tell what
each test executes; `part` [i, n]: the i-th of each n tests only) or `order` (the tests to run until one fails) with
`limits` (test -> seconds).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

IMPORTED_ONCE = (
    *(
        "numpy",
        "yaml",
        "jinja2",
        "jsonschema",
        "hypothesis",
        "onnx",
        "onnx.helper",
        "onnx.numpy_helper",
        "onnx.checker",
    ),
    *(
        "onnx.reference",
        "onnx.backend.test",
        "flatbuffers",
        "google.protobuf",
        "numpy.testing",
        "tempfile",
        "ctypes",
    ),
    *("onnxruntime", "ai_edge_litert.interpreter", "xdist", "pytest_timeout", "concurrent.futures.process"),
)
"""What tests import; nothing here may start threads, which a fork does not copy."""

COLLECTION_SECONDS = 180
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
REWRITE = "ignore::pytest.PytestAssertRewriteWarning"  # Hypothesis is imported before pytest could change its asserts
PYTHON_PROGRAMS = ("python", "mace", "scons", "pytest", "uv")


def main() -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter(
        "ignore"
    )  # Python 3.12 warns of forks beside threads, such as those of NumPy's BLAS
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    for name in IMPORTED_ONCE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers.write("{}\n")
    for line in sys.stdin:
        answers.write(json.dumps(run_forked(json.loads(line))) + "\n")


def run_forked(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a request in a new process; what they told, and why they ended.

    `end`: "finished", "timeout", "crash" or pytest's status if it is another; `test`: which ran last; `events`: one for each test.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.setsid()  # tests start processes; a group ends with one signal
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no test may read the next request
        with os.fdopen(writer, "w", buffering=1) as stream:
            run_tests(request, Events(stream))
        os._exit(0)
    os.close(writer)
    try:
        return watch(reader, request.get("limits", {}))
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def watch(reader: int, limits: dict[str, float]) -> dict[str, Any]:
    """Read events until the last one, the end of the process or a test that takes too long."""
    events: list[dict[str, Any]] = []
    rest, current, until = b"", "", time.monotonic() + COLLECTION_SECONDS
    while True:
        # The next request comes after the answer: what can be read of the input now is its end.
        ready, _, _ = select.select([reader, 0], [], [], max(0.0, until - time.monotonic()))
        received = os.read(reader, 1 << 16) if reader in ready else b""
        if not received:
            return {"end": "crash" if ready else "timeout", "test": current, "events": events}
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if "end" in event:
                finished = event["end"] in (*PASSED, pytest.ExitCode.TESTS_FAILED)
                end = "finished" if finished else f"status {event['end']} {event['why']}"
                return {"end": end, "test": current, "events": events}
            if "start" in event:
                current = event["start"]
                until = time.monotonic() + limits.get(current, 3600)
            else:
                events.append(event)
                until = time.monotonic() + COLLECTION_SECONDS


class Events:
    """Writes events, one a line; from the process that made it only, as tests may fork."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.process = stream, os.getpid()

    def __call__(self, **event: Any) -> None:
        """Write an event."""
        if os.getpid() == self.process:
            self.stream.write(json.dumps(event) + "\n")


def run_tests(request: dict[str, Any], tell: Events) -> None:
    """Run pytest in this process, whatever comes of it."""
    tracer = Tracer(os.getcwd()) if request.get("measure") else None
    words = [
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
        "-W",
        REWRITE,
        "-m",
        request["marks"],
        *request["files"],
    ]
    if "hypothesis" in sys.modules:
        words.append("--hypothesis-seed=0")
    recorder = Recorder(tell, request.get("order"), tracer)
    recorder.part = slice(request["part"][0], None, request["part"][1]) if "part" in request else slice(None)
    if tracer:
        tracer.start()
    else:
        words.append("-x")
    try:
        tell(end=int(pytest.main(words, plugins=[recorder])), why="")
    # A planted fault may raise anything in pytest, SystemExit and KeyboardInterrupt as well. If the error left
    # this function, the forked process would go on in the server's own loop; so it is reported and ends here.
    except BaseException as error:  # noqa: BLE001
        tell(end=-1, why=repr(error))


class Recorder:
    """Tells of each test how it ended; puts the tests in order first."""

    def __init__(self, tell: Events, order: list[str] | None, tracer: Tracer | None) -> None:
        self.tell, self.tracer = tell, tracer
        self.ranks = None if order is None else {test: rank for rank, test in enumerate(order)}
        self.outcome, self.started = "passed", 0.0
        self.part = slice(None)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that are asked for."""
        ranks = self.ranks
        items[:] = items[self.part]
        if ranks is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid]
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a file that cannot be imported."""
        if report.failed:
            self.tell(test=report.nodeid, outcome="failed", seconds=0)

    def pytest_collection_finish(self) -> None:
        """Tell what the import of the file executes."""
        if self.tracer:
            self.tell(imported=self.tracer.take())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a test starts."""
        self.outcome, self.started = "passed", processor_time()
        self.tell(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst of setup, call and teardown."""
        if report.outcome != "passed":
            self.outcome = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Tell how a test ended."""
        executed = self.tracer.take() if self.tracer else []
        self.tell(
            test=nodeid, outcome=self.outcome, seconds=processor_time() - self.started, executed=executed
        )


def processor_time() -> float:
    """Return the seconds that this process and those that it waited for have used.

    Wall time would tell how busy the machine is rather than what a test costs.
    """
    return sum(os.times()[:4])


class Tracer:
    """Notes which functions of a folder are called, and which of its files are opened.

    Only calls are traced, not lines: tests take some tenths longer.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder + os.sep
        self.codes: set[CodeType] = set()
        self.marks: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Trace from now on, in all threads."""
        sys.addaudithook(self._audit)
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, arg: object) -> None:
        self.codes.add(frame.f_code)

    def _audit(self, event: str, words: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(words[0], str) and words[0].startswith(self.folder):
            if not words[0].endswith((".py", ".pyc")):
                self.marks.add((words[0].removeprefix(self.folder), -1))
        elif event == "os.fork" or (event == "subprocess.Popen" and is_python(words[0])):
            self.marks.add(("", -1))

    def take(self) -> list[tuple[str, int]]:
        """Return what was executed since the last time.

        File and first line of functions (0: module), file and -1 if it was opened, "" and -1 where another Python
        process was started, which may execute anything.
        """
        sys.settrace(self._trace)  # a test may have taken it away
        # The calls below are traced, too: they must not change the set that is read.
        codes, self.codes = self.codes, set()
        marks, self.marks = self.marks, set()
        inside = [code for code in codes if code.co_filename.startswith(self.folder)]
        found = {(code.co_filename.removeprefix(self.folder), first_line(code)) for code in inside}
        # What Jinja makes of a template bears its path, and is kept: later tests execute it without opening it.
        found = {(name, line if name.endswith(".py") else -1) for name, line in found}
        return sorted(found | marks)


def is_python(program: str | bytes | os.PathLike[str]) -> bool:
    """Tell whether a program is Python, or written in it."""
    return Path(os.fsdecode(program)).name.startswith(PYTHON_PROGRAMS)


def first_line(code: CodeType) -> int:
    """Return the first line of a function with its decorators; 0 for a module."""
    return 0 if code.co_name == "<module>" else code.co_firstlineno


if __name__ == "__main__":
    main()
