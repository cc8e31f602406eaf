"""Kernels in Oclgrind, a simulator that finds races and accesses outside of buffers.

A tensor is a part of a buffer, and a port's buffer is rounded up to 256 bytes: an access that leaves its tensor
by a few elements stays inside of the buffer, and is found only where it changes a result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mace_core.testing.requirements import require

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")


TESTS = (
    "test_depthwise_product.py::test_small_blocks_compute_what_the_references_do",
    "test_images.py::test_networks_of_odd_sizes_compute_what_the_references_do[f32-1e-05]",
    "test_images.py::test_networks_of_odd_sizes_compute_what_the_references_do[f16-0.005]",
    "test_ops.py::test_ops_of_odd_shapes_compute_what_the_references_do[plain]",
    "test_quantized.py::test_tiles_of_bytes_have_the_bits_of_the_cpu[small]",
    "test_quantized.py::test_convolutions_compute_what_the_references_do",
    "test_winograd.py::test_results_are_within_the_bound[2]",
    "test_winograd.py::test_results_are_within_the_bound[4]",
)
"""Tests whose kernels run in the simulator."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("test", TESTS)
def test_kernels_of_odd_shapes_have_no_races_and_stay_inside_of_their_buffers(
    test: str, tmp_path: Path
) -> None:
    require(None if DRIVER.exists() else "install oclgrind for the test of races in kernels")
    log = tmp_path / "oclgrind.log"
    # As a driver and not by the program `oclgrind`, which preloads a library of its own: the target's driver
    # opens libOpenCL itself, and calls would reach both.
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(DRIVER),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_LOG": str(log),
    }
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "device and exhaustive"]
    command = [sys.executable, "-m", "pytest", *options, str(Path(__file__).with_name(test))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 passed" in done.stdout
    text = log.read_text() if log.exists() else ""
    assert text == ""
