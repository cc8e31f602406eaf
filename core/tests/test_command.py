"""Commands of a toolchain: what they print, how they fail, and that a user who waits hears of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.run import command
from mace_core.run.command import Command


def python(text: str, folder: Path, slow: str = "") -> Command:
    return Command((sys.executable, "-c", text), folder, {"ONLY": "this"}, "lib.a", slow)


def test_it_sees_its_environment_and_folder_alone(tmp_path: Path) -> None:
    said: list[str] = []
    python(
        "import os; print(os.environ['ONLY'], 'PATH' in os.environ); print(os.getcwd())", tmp_path
    ).execute(said.append)
    assert said == ["this False", str(tmp_path)]


def test_nothing_waits_for_a_user(tmp_path: Path) -> None:
    said: list[str] = []
    python("import sys; print(repr(sys.stdin.read()))", tmp_path).execute(said.append)
    assert said == ["''"]


def test_a_failure_tells_what_was_printed_and_the_command(tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        python("import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)", tmp_path).execute(
            print
        )
    tool, code = (
        Path(sys.executable).name,
        "import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)",
    )
    first, *printed, last = str(error.value).splitlines()
    assert first == f"lib.a: {tool} failed with exit status 3"
    assert sorted(printed) == ["out", "why"]
    assert last == f"command: {sys.executable} -c {code}; correct it, or report a bug"


def test_a_failure_without_output_is_told_too(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="failed with exit status 1\nit printed nothing\ncommand: "):
        python("raise SystemExit(1)", tmp_path).execute(print)


def test_a_signal_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="was killed by SIGKILL; if memory is short, build with fewer jobs"):
        python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path).execute(print)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"no_such_compiler: cannot be started: .*mace doctor"):
        Command(("no_such_compiler",), tmp_path, {}, "lib.a").execute(print)


def test_bytes_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    said: list[str] = []
    python("import sys; sys.stdout.buffer.write(b'a\\xffb')", tmp_path).execute(said.append)
    assert said == ["a\ufffdb"]


def test_a_command_that_takes_long_is_spoken_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FIRST_REPORT", 0.05)
    monkeypatch.setattr(command, "NEXT_REPORT", 60.0)
    said: list[str] = []
    python("import time; time.sleep(0.6); print('done')", tmp_path, "it builds a C library").execute(
        said.append
    )
    assert said == ["lib.a: 0 s; it builds a C library", "done"]
