"""Chooses what the plain run leaves out, and keeps the byte code of imported modules.

A test of many cases marked `sampled` runs some of them in the plain run; the others are marked `exhaustive`,
and `.ci/run` runs them too.

Containers often set PYTHONDONTWRITEBYTECODE.  The tests start hundreds of Python processes, and each of them
then compiles every module that it imports: of TensorFlow that takes longer than the import itself, and pytest
rewrites all assertions again in each worker.  The byte code lies under `.pytest_cache`: no file appears
beside a source.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent

LEFT_OUT = ("fuzz", "emulator", "wheels", "exhaustive", "device")
"""Marks of tests that the plain run leaves out; each counts as slow, so that `-m "not slow"` leaves it out too."""

COMPILING = (
    "test_accepted_nodes_compute_what_their_references_do",
    "test_hostile_names_stay_names",
    "test_sessions_use_the_heap_only_if_a_driver_says_so",
    "test_several_regions_compute_what_one_does",
    "test_states_last_from_run_to_run",
)
"""Tests of contracts that start a compiler: `mace_core.testing` cannot carry our marks, which its other users lack."""

FRAMEWORKS = {
    "frontends/pytorch/": "torch",
    "frontends/ai8x/": "torch",
    "frontends/tensorflow/": "tensorflow",
    "frontends/keras/": "tensorflow",
    "tests/test_formats.py": "tensorflow",
    "tests/test_port_names.py": "tensorflow",
    "tests/test_states.py": "tensorflow",
}
"""Where the paths of tests begin that import a framework -> the framework."""

IMPORTING = (
    *("frontends/keras/", "frontends/pytorch/", "frontends/tensorflow/"),
    *("frontends/ai8x/tests/test_arithmetic.py", "frontends/ai8x/tests/test_fuse.py", "tests/test_states.py"),
)
"""Where the paths of tests begin nearly all of which use a framework: its import alone takes many seconds."""

if sys.dont_write_bytecode:
    folder = str(ROOT / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what a sampled test leaves out of the plain run, and as slow that, compilers and imports of frameworks."""
    numbers: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        sampled = item.get_closest_marker("sampled")
        if sampled and not is_in_sample(item, numbers[test], sampled):
            item.add_marker("exhaustive")
        numbers[test] += 1
        marks = {mark.name for mark in item.iter_markers()}
        compiles = test.rpartition("::")[2] in COMPILING
        if not marks.isdisjoint(LEFT_OUT) or compiles or test.startswith(IMPORTING):
            item.add_marker("slow")
    if "device" not in config.option.markexpr:
        items[:] = [item for item in items if item.get_closest_marker("device") is None]


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a group to one worker: fixtures of a module are made once, a framework is imported once.

    pytest-xdist's own `--dist=loadgroup` writes the group into `Item._nodeid`, which pytest 9 no longer reads: it
    groups nothing, without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0])

    return ByGroup(config, log)


def group_of(file: str) -> str:
    """Name the tests that one worker runs: those of a framework, which takes long to import, else those of a file."""
    return next((group for start, group in FRAMEWORKS.items() if file.startswith(start)), file)


def is_in_sample(item: pytest.Item, number: int, sampled: pytest.Mark) -> bool:
    """Tell whether the plain run takes this case: each `every`-th of a test, or those whose identifier matches `cases`."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    case = item.callspec.id
    if "cases" in sampled.kwargs:
        return re.search(sampled.kwargs["cases"], case) is not None
    return number % int(sampled.kwargs["every"]) == 0
