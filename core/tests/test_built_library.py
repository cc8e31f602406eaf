"""Programs of a built library: what is said where one is missing or fails."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.report import LibraryReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.runners import Native, Runner


class Scripted(Runner):
    """Runs a line of Python in the place of each program, as emulators do."""

    name = "scripted"

    def __init__(self, line: str) -> None:
        self.line = line

    def command(self, program: Path, arguments: Iterable[str]) -> list[str]:
        return [sys.executable, "-P", "-c", self.line]


def execute(folder: Path, runner: Runner) -> str:
    return BuiltLibrary(folder / "arm64", runner, LibraryReport({})).execute("mace_run", [])


@pytest.mark.parametrize(
    "runner", [Native(), Scripted("raise SystemExit(1)")], ids=["native", "silent emulator"]
)
def test_a_missing_program_is_named_with_the_command_that_builds_it(tmp_path: Path, runner: Runner) -> None:
    with pytest.raises(MaceError) as raised:
        execute(tmp_path, runner)
    assert str(raised.value) == (
        f"{tmp_path / 'arm64' / 'mace_run'}: is not there: its build is not finished, or failed; "
        "run: scons target=arm64, or mace build FILE --target arm64"
    )


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(
        MaceError, match="mace_run: exited with status 1: known-answer test; correct its input"
    ):
        execute(tmp_path, Scripted("raise SystemExit('known-answer test')"))
    (tmp_path / "arm64").mkdir()
    (tmp_path / "arm64" / "mace_run").write_text("")
    with pytest.raises(MaceError, match="exited with status 3: it printed nothing"):
        execute(tmp_path, Scripted("raise SystemExit(3)"))


def test_what_a_program_prints_is_returned(tmp_path: Path) -> None:
    assert execute(tmp_path, Scripted("print('done')")) == "done\n"
