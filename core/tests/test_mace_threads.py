"""The pool of threads: every task once, no data races, and no more threads than there are processors."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from mace_core.testing.requirements import require

pytestmark = pytest.mark.slow  # a compiler makes the program

RUNTIME = Path(str(files("mace_core") / "runtime"))
SOURCE = Path(__file__).parent / "engine" / "pool_stress.c"
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", "-pthread")


@pytest.fixture(scope="module", params=["thread", "address,undefined"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    made = tmp_path_factory.mktemp("pool") / "pool_stress"
    sanitize = f"-fsanitize={request.param}"
    subprocess.run(["gcc", *FLAGS, sanitize, "-fno-sanitize-recover=all", SOURCE, "-o", made], check=True)
    return made


@pytest.mark.parametrize("processors", [8, 3])
def test_every_task_is_computed_once(program: Path, processors: int) -> None:
    """Two callers share a pool of 8 workers, two have one each; the system has 8 processors, or 3.

    First two tasks wait for each other, which they can in two threads only.
    """
    assert run(program, processors) == f"workers {processors}, faults 0, met yes, awake 0\n"


def test_one_processor_needs_no_threads(program: Path) -> None:
    assert run(program, 1) == "workers 1, faults 0, met no, awake 0\n"


def run(program: Path, processors: int) -> str:
    done = subprocess.run(
        [program, str(processors)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout
