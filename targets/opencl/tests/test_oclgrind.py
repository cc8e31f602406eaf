"""Kernels in Oclgrind, a simulator that finds races and accesses outside of buffers.

A tensor is a part of a buffer, and a port's buffer is rounded up to 256 bytes: an access that leaves its tensor
by a few elements stays inside of the buffer, and is found only where it changes a result.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from compiler_cache import choose_cache

from mace_core.testing.requirements import require

DRIVER = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")


TESTS = (
    "test_depthwise_bytes.py::test_one_kernel_computes_what_the_references_do",
    "test_depthwise_images.py::test_one_kernel_has_the_bits_of_two",
    "test_depthwise_product.py::test_small_blocks_compute_what_the_references_do",
    "test_images.py::test_networks_of_odd_sizes_compute_what_the_references_do[f32-1e-05]",
    "test_images.py::test_networks_of_odd_sizes_compute_what_the_references_do[f16-0.005]",
    "test_product.py::test_split_products_compute_what_the_references_do",
    "test_quantized.py::test_tiles_of_bytes_have_the_bits_of_the_cpu[small]",
    "test_quantized.py::test_convolutions_compute_what_the_references_do",
    "test_winograd.py::test_results_are_within_the_bound[2]",
    "test_winograd.py::test_results_are_within_the_bound[4]",
)
"""Tests whose kernels run in the simulator."""


@pytest.mark.slow
def test_small_kernels_have_no_races_and_stay_inside_of_their_buffers(tmp_path: Path) -> None:
    test = Path(__file__).with_name("test_small_kernels.py")
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "device and slow"]
    assert "2 passed" in simulate(["-m", "pytest", *options, str(test)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("test", TESTS)
def test_kernels_of_odd_shapes_have_no_races_and_stay_inside_of_their_buffers(
    test: str, tmp_path: Path
) -> None:
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "device and exhaustive"]
    output = simulate(["-m", "pytest", *options, str(Path(__file__).with_name(test))], tmp_path)
    assert "1 passed" in output


@pytest.mark.exhaustive
def test_each_op_of_three_odd_shapes_has_no_races_and_stays_inside_of_its_buffers(tmp_path: Path) -> None:
    output = simulate([str(Path(__file__).with_name("odd_shapes.py"))], tmp_path)
    numbers = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) results of (\d+) ops\n", output)]
    assert len(numbers) == 2, output
    # On random numbers and on the ends of floats.
    for (results, ops), min_ops in zip(numbers, (129, 100), strict=True):
        assert results >= 3 * ops
        assert ops >= min_ops


@pytest.mark.exhaustive
def test_half_precision_in_buffers_has_no_races_and_stays_inside_of_them(tmp_path: Path) -> None:
    output = simulate([str(Path(__file__).with_name("odd_shapes.py")), "f16"], tmp_path)
    numbers = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) results of (\d+) ops\n", output)]
    assert len(numbers) == 2, output
    # Of every op with storage in half precision, and of products with arithmetic in it as well.
    for (results, ops), (min_results, min_ops) in zip(numbers, ((3 * 129, 129), (15, 3)), strict=True):
        assert results >= min_results
        assert ops >= min_ops


def simulate(arguments: Sequence[str], folder: Path) -> str:
    """Return what a Python process prints whose kernels run in the simulator, which has found no fault."""
    require(None if DRIVER.exists() else "install oclgrind for the test of races in kernels")
    log = folder / "oclgrind.log"
    # As a driver and not by the program `oclgrind`, which preloads a library of its own: the target's driver
    # opens libOpenCL itself, and calls would reach both.
    environment = {
        **os.environ,
        **choose_cache(folder),
        "OCL_ICD_VENDORS": str(DRIVER),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_LOG": str(log),
    }
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    text = log.read_text() if log.exists() else ""
    assert text == ""
    return done.stdout
