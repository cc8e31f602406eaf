"""The device that a user names: which options it becomes for sessions, and where no session has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from candidates_target import Grouping

from mace_core.device_choice import ChoosingTarget, select_devices
from mace_core.errors import MaceError
from mace_core.report import LibraryReport, ModelReport, PartReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.toolchain import Runner


class Choosing(Grouping, ChoosingTarget):
    """A target whose driver has several devices."""

    def select_device(self, name: str) -> str:
        return f"grouping.device={name}"


@dataclass
class Recorder(Runner):
    """Prints times in the place of each program, and keeps its arguments."""

    name = "recorder"
    arguments: list[str] = field(default_factory=list)

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        self.arguments = list(arguments)
        times = json.dumps({"model": "m", "ns": [1], "threads": 1, "units": [0, 12]})
        return [sys.executable, "-P", "-c", f"print({times!r})"]


def open_library(runner: Runner) -> BuiltLibrary:
    """Return a library with a model of two parts, and one that the processor computes alone."""
    parts = (PartReport("cpu0", "cpu", ()), PartReport("grouping0", "grouping", (), "grouping"))
    two, one = (ModelReport(0, 0, 0, 0, (), (), (), parts=some) for some in (parts, parts[:1]))
    return BuiltLibrary(Path("host"), runner, LibraryReport({"two": two, "one": one}))


def test_a_device_becomes_an_option_of_the_targets_that_choose(tmp_path: Path) -> None:
    targets = [Grouping(tmp_path), Choosing(tmp_path)]
    assert select_devices(targets, "NVIDIA H200") == {"grouping": "grouping.device=NVIDIA H200"}
    assert select_devices(targets, "") == {}
    with pytest.raises(MaceError, match=r"--device a;x\.library=b: a name has no ';'"):
        select_devices(targets, "a;x.library=b")


def test_sessions_of_models_with_a_part_there_get_the_option(tmp_path: Path) -> None:
    runner = Recorder()
    library = open_library(runner).select_device("mali", [Choosing(tmp_path)])
    assert library.time("two").units == (0, 12)
    assert "--options=grouping.device=mali" in runner.arguments
    # Without a driver, a session refuses all options.
    library.time("one")
    assert not any(argument.startswith("--options") for argument in runner.arguments)
    open_library(runner).time("two")
    assert not any(argument.startswith("--options") for argument in runner.arguments)


def test_a_device_that_no_part_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="--device mali: no part of host is computed by a target with sev"):
        open_library(Recorder()).select_device("mali", [Grouping(tmp_path)])
