"""The `mace` command for tests of what it prints and writes."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner
from small_project import MACE, run

from mace_core.cli import main


def mace(folder: Path, *arguments: str, status: int = 0) -> str:
    """Return what the command prints in a folder; fails the test unless it exits with the status.

    Most commands run in this process, which saves the second that Python needs to import everything. A build
    starts SCons, whose output only a process of its own shows.
    """
    if arguments[0] == "build":
        return run([*MACE, *arguments], folder, os.environ, status)
    with chdir(folder):
        result = CliRunner().invoke(main, arguments, prog_name="mace")
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr
