"""Nothing that a model, a file's name or a server says reaches the terminal as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.run.tables import table
from mace_core.terminal import escape_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\tÄ\n", "plain\tÄ\n"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m\r", "\\x9b31m\\r"),
        ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),
        ("\ud800", "\\ud800"),
        ("\u2028x\u200b", "\\u2028x\\u200b"),
    ],
)
def test_controls_become_visible(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_a_place_stays_on_its_line() -> None:
    assert str(MaceError("a\nmace: all is well", "is wrong")) == "a\\nmace: all is well: is wrong"


def test_cells_are_no_markup_and_no_commands() -> None:
    text = table(("name",), [("[bold]x[/bold]",), ("\x1b[2J\n",)])
    assert "[bold]x[/bold]" in text
    assert "\\x1b[2J\\n" in text


@pytest.mark.slow
def test_the_command_line_prints_no_escapes(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[2Jb.yml"
    file.write_text('library_name: "\\e[31mred"\nmodels: {}\n')
    for name in (file.name, "gone\x1b[2J.yml"):
        command = [sys.executable, "-m", "mace_core.cli", "check", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "\x1b" not in done.stdout + done.stderr
        assert "\\x1b[2J" in done.stderr
