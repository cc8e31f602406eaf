"""Runs the tests marked `device` in a process without TensorFlow.

TensorFlow and PoCL, the OpenCL driver of CI, both bring LLVM. In one process PoCL ends by SIGSEGV, or takes
TensorFlow's LLVM, which has no code for this processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from compiler_cache import choose_cache

pytestmark = pytest.mark.timeout(1800)
"""Seconds: each of the tests in the process has the usual limit, and there are a hundred of them."""


@pytest.mark.slow
def test_a_device_computes_what_the_references_do(tmp_path: Path) -> None:
    run_tests("device and not exhaustive and not fuzz", tmp_path)


@pytest.mark.exhaustive
def test_a_device_computes_every_op_and_whole_models(tmp_path: Path) -> None:
    # Most of the time is PoCL's compiler, which takes half as long without optimization. What the other test
    # selects is optimized.
    run_tests("device and exhaustive", tmp_path, {"POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable"})


def run_tests(marks: str, folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> None:
    """Assert that the tests that the expression selects pass; skip if no device is installed.

    folder: of the test, beside which compilers keep what they made.  settings: further environment variables.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-rs", "-p", "no:cacheprovider", "-m", marks]
    environment = {**os.environ, **choose_cache(folder), **settings}
    done = subprocess.run(
        [*command, str(Path(__file__).parent)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()
    if " passed" not in summary[-1]:
        pytest.skip(summary[-2])
