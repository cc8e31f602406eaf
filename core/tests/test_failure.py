"""No traceback reaches a user: a mistake is one message with status 2, a defect one with status 3 and a file with the details."""

from __future__ import annotations

import io
import re
import tempfile
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from mace_core import commands
from mace_core.cli import main
from mace_core.errors import MaceError, PluginWarning
from mace_core.failure import report_failure


def raised(error: BaseException) -> BaseException:
    """Give the error a traceback."""
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_mistake_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    assert report_failure(MaceError("a.yml", "is wrong", "mend it"), stream) == 2
    assert stream.getvalue() == "mace: a.yml: is wrong; mend it\n"


@pytest.mark.parametrize(
    "error",
    [KeyError("x\x1b[2J"), ValueError("many\nlines"), RecursionError(), MemoryError(), ZeroDivisionError()],
)
def test_a_defect_names_a_file_with_its_details(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stream = io.StringIO()
    assert report_failure(raised(error), stream) == 3
    (line,) = stream.getvalue().splitlines()
    assert line.startswith(f"mace: internal error ({type(error).__name__}")
    (path,) = tmp_path.iterdir()
    assert str(path) in line
    assert "\x1b" not in line
    text = path.read_text()
    assert re.search(r"mace-core \d", text)
    assert "Traceback" in text
    assert "test_failure.py" in text
    assert path.stat().st_mode & 0o077 == 0


def test_a_defect_is_told_by_the_start_of_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stream = io.StringIO()
    assert report_failure(raised(ValueError(180 * "x" + "\nsecond")), stream) == 3
    assert f"(ValueError: {180 * 'x'});" in stream.getvalue()
    assert report_failure(raised(ValueError(300 * "x")), stream) == 3
    assert f"(ValueError: {188 * 'x'});" in stream.getvalue()


def test_a_folder_that_takes_no_file_is_no_second_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    stream = io.StringIO()
    assert report_failure(raised(KeyError("x")), stream) == 3
    assert "none can be written here" in stream.getvalue()


def test_a_command_ends_with_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(commands, "list_plugins", lambda: {}["absent"])
    result = CliRunner().invoke(main, ["plugins"])
    assert result.exit_code == 3
    assert "Traceback" not in result.output
    assert "please report it" in result.output


def test_each_command_prints_plugins_that_do_not_work_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of another class is printed in Python's own format."""
    usual: list[str] = []

    def warn() -> list[str]:
        for _ in range(2):  # each time, though Python tells a warning of one place once
            warnings.warn("x\x1b[2J does not load", PluginWarning, stacklevel=1)
        warnings.warn("other", UserWarning, stacklevel=1)
        return []

    monkeypatch.setattr(commands, "list_plugins", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(
            warnings, "showwarning", lambda message, *place, **more: usual.append(str(message))
        )
        result = CliRunner().invoke(main, ["plugins"])
    assert result.exit_code == 0, result.output
    assert result.output.count("mace: warning: x") == 2
    assert result.output.count(" does not load\n") == 2
    assert "\x1b" not in result.output
    assert usual == ["other"]
