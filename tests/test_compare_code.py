"""The command that compares generated C: what it calls equal, and that it sees a change of one instruction."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mace_core.testing.requirements import require

TOOL = Path(__file__).parents[1] / "tools/compare_code.py"
SOURCE = "/* old */\nint add(int a, int b) { return a + b; }\nint twice(int a) { return 2 * a; }\n"


def compare(folder: Path, after: str) -> tuple[int, str]:
    """Return the exit status and what is printed for SOURCE and another text of the same file."""
    require(
        None
        if shutil.which("gcc") and shutil.which("objdump")
        else "gcc is not installed: apt-get install gcc"
    )
    for name, text in (("before", SOURCE), ("after", after)):
        (folder / name).mkdir()
        (folder / name / "kernels.c").write_text(text)
    command = [sys.executable, "-P", str(TOOL), str(folder / "before"), str(folder / "after")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (SOURCE, "bytes"),
        (SOURCE.replace("old", "new"), "without comments"),
        (SOURCE.replace("int a, int b) { return a + b", "int x, int y) { return x + y"), "machine code"),
    ],
)
def test_files_that_do_the_same_are_equal(after: str, found: str, tmp_path: Path) -> None:
    assert compare(tmp_path, after) == (0, f"1 files: {found}\n")


def test_a_function_that_differs_is_named(tmp_path: Path) -> None:
    status, text = compare(tmp_path, SOURCE.replace("a + b", "a - b"))
    assert status == 1
    assert text.splitlines()[-1] == "kernels.c: 1 of 2 functions differ: add"


def test_a_file_that_only_one_version_writes_is_named(tmp_path: Path) -> None:
    assert compare(tmp_path, SOURCE)[0] == 0
    (tmp_path / "after" / "more.c").write_text(SOURCE)
    command = [sys.executable, "-P", str(TOOL), str(tmp_path / "before"), str(tmp_path / "after")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"more.c: is missing in {tmp_path / 'before'}" in done.stdout
