"""Runs the tests marked `device` in a process without TensorFlow.

TensorFlow and PoCL, the OpenCL driver of CI, both bring LLVM. In one process PoCL ends by SIGSEGV, or takes
TensorFlow's LLVM, which has no code for this processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1800)
"""Seconds: each of the tests in the process has the usual limit, and there are a hundred of them."""


CCACHE = "/usr/lib/ccache"
"""Where Debian's ccache has compilers; the folder need not exist."""


@pytest.mark.slow
def test_a_device_computes_what_the_references_do(tmp_path: Path) -> None:
    run_tests("device and not exhaustive and not fuzz", tmp_path)


@pytest.mark.exhaustive
def test_a_device_computes_every_op_and_whole_models(tmp_path: Path) -> None:
    run_tests("device and exhaustive", tmp_path)


def run_tests(marks: str, objects: Path) -> None:
    """Assert that the tests that the expression selects pass; skip if no device is installed.

    objects: folder for what the compiler makes of the driver, whose twenty files each library has: with ccache
    they are compiled once, not in each of a hundred tests.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-rs", "-p", "no:cacheprovider", "-m", marks]
    folder = Path(__file__).parent
    path = f"{CCACHE}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CCACHE_DIR": str(objects)}
    done = subprocess.run(
        [*command, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()
    if " passed" not in summary[-1]:
        pytest.skip(summary[-2])
