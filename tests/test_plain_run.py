"""What the plain run of the tests leaves out, by the marks of the root's conftest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive  # starts pytest several times

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("n", range(7))
def test_each_third(n): pass

@pytest.mark.sampled(cases="^(red|blue)$")
@pytest.mark.parametrize("color", ["red", "dark red", "blue"])
def test_by_name(color): pass

@pytest.mark.sampled(every=3)
def test_without_cases(): pass

@pytest.mark.wheels
def test_wheels(): pass

@pytest.mark.slow
def test_slow(): pass

def test_hostile_names_stay_names(): pass
"""
SAMPLE = ["each_third[0]", "each_third[3]", "each_third[6]", "by_name[red]", "by_name[blue]", "without_cases"]
SLOW = ["slow", "hostile_names_stay_names"]
REST = ["each_third[1]", "each_third[2]", "each_third[4]", "each_third[5]", "by_name[dark red]", "wheels"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("marks", "selected"),
    [((), [*SAMPLE, *SLOW]), (("-m", "not slow"), SAMPLE), (("-m", "not fuzz"), [*SAMPLE, *REST, *SLOW])],
    ids=["plain", "not slow", "all"],
)
def test_what_a_run_selects(marks: tuple[str, ...], selected: list[str], tmp_path: Path) -> None:
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "test_marked.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        "-n0",
        *marks,
    ]
    # What whoever runs these tests asks of pytest would change what is listed.
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, "test_marked.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    assert sorted(line.removeprefix("test_marked.py::test_") for line in lines) == sorted(selected)


@pytest.mark.slow
def test_the_tests_of_a_file_run_in_one_worker(tmp_path: Path) -> None:
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    case = "import os, pathlib, pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_(n):\n"
    note = "    pathlib.Path(__file__ + os.environ['PYTEST_XDIST_WORKER']).touch()\n"
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(case + note)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n2", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        check=True,
    )
    notes = sorted(path.name.partition("gw")[0] for path in tmp_path.glob("test_*.pygw*"))
    assert notes == [f"test_{number}.py" for number in range(4)]
