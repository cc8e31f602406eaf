"""The work that benchmarks/kernels.py counts for each kernel, and the shares that it derives from times."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import kernels
from kernel_cases import Case, Matrices
from kernels import Peaks, Work

from mace_target_opencl.target import Opencl

LINES = ["device GPU of a test", "multiply 100.0 4", "copy 10.0", "launch 2", "sgemm 8 4 6 24"]


def work(case: Case, ns: int) -> Work:
    """Return a case whose only kernel took so long."""
    graph = case.build()
    return Work(case.name, "GPU", Opencl().lower(graph, "host"), graph, (ns,))


def test_a_product_is_compared_with_the_peaks_and_with_clblast() -> None:
    (time,) = work(Case(4, 6, rows=8), 48).compare(Peaks.of_lines(LINES))
    assert (time.flops, time.matrices) == (2 * 8 * 4 * 6, Matrices(8, 4, 6))
    assert time.bytes == 4 * (8 * 6 + 6 * 4 + 8 * 4)
    assert time.peak_share == pytest.approx(384 / 100 / 48)
    assert time.copy_share == pytest.approx(416 / 10 / 48)
    # CLBlast's 24 ns and a launch of 2.
    assert time.sgemm_share == pytest.approx(26 / 48)
    # The copy of its bytes takes 41.6 ns, longer than the 24 ns of the product.
    assert time.bound_share == pytest.approx((41.6 + 2) / 48)


def test_the_peak_is_the_bound_of_a_product_without_clblast() -> None:
    peaks = Peaks.of_lines([*LINES[:2], "copy 1000", "launch 1", "absent no such file"])
    (time,) = work(Case(4, 6, rows=8), 48).compare(peaks)
    assert (peaks.remark, time.sgemm_share) == ("no such file", None)
    assert time.bound_share == pytest.approx((3.84 + 1) / 48)


def test_a_convolution_is_the_product_of_its_windows_and_filters() -> None:
    case = Case(10, 5, batch=2, size=6, window=3, stride=2)
    (node,) = (graph := case.build()).nodes
    assert Matrices.of_node(node, graph) == Matrices(2 * 3 * 3, 10, 3 * 3 * 5)
    assert work(case, 1).products == [Matrices(18, 10, 45)]


def test_peaks_of_another_device_end_the_benchmark() -> None:
    peaks = Peaks.of_lines(LINES)
    measured = work(Case(4, 6, rows=8), 48)
    kernels.check_device([replace(measured, device="opencl: GPU  of a test, driver 1")], peaks)
    with pytest.raises(SystemExit, match="computed by GPU, and the peaks are those of GPU of a test"):
        kernels.check_device([measured], peaks)


def test_a_node_without_a_kernel_ends_the_benchmark() -> None:
    (node,) = Case(4, 6, rows=8).build().nodes
    with pytest.raises(SystemExit, match="no kernel computes it"):
        kernels.find_call(replace(node, name="other", sources=("other",)), ())
