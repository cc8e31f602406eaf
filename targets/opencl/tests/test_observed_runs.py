"""Runs whose layers are observed, and check builds, on a library that stands in for the system's."""

from __future__ import annotations

import pytest
from stub_session import Probe, ProbeSession, build_probe

from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

pytestmark = pytest.mark.exhaustive

LOST, FAILED = 10, 11
OBSERVED = ProbeSession(observes=True)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """Return a probe of a library whose kernels test their bounds, which other builds do not."""
    target = Opencl(OpenclOptions(checks_bounds=True))
    return build_probe(tmp_path_factory.mktemp("check"), target=target)


def test_each_call_is_shown_with_its_time(probe: Probe) -> None:
    log = probe.run(OBSERVED)
    assert log.find("run") == ["0", "0"]
    assert log.find("layer") == ["0 700 Relu"] * 2


@pytest.mark.parametrize("fault", ["clGetEventProfilingInfo:1:-7", "clGetEventProfilingInfo:2:-7"])
def test_a_device_without_times_shows_its_layers(fault: str, probe: Probe) -> None:
    log = probe.run(OBSERVED, FAIL=fault)
    assert log.find("run") == ["0", "0"]
    assert log.find("layer") == ["0 0 Relu", "0 700 Relu"]


def test_a_device_without_a_second_queue_shows_its_layers(probe: Probe) -> None:
    log = probe.run(OBSERVED, FAIL="clCreateCommandQueue:2:-35")
    assert log.find("run") == ["0", "0"]
    assert len(log.find("layer")) == 2


@pytest.mark.parametrize(("function", "nth"), [("clEnqueueNDRangeKernel", 2), ("clEnqueueReadBuffer", 2)])
@pytest.mark.parametrize(("code", "status"), [(-5, FAILED), (-36, LOST)])
def test_an_observed_run_that_fails_ends_as_others(
    function: str, nth: int, code: int, status: int, probe: Probe
) -> None:
    first, second = probe.run(OBSERVED, FAIL=f"{function}:{nth}:{code}").find("run")
    assert first.startswith(f"{status} ")
    assert second.startswith("0" if status == FAILED else f"{LOST} ")


@pytest.mark.parametrize("session", [ProbeSession(), ProbeSession(submits=True), OBSERVED])
def test_an_access_outside_of_a_tensor_fails_the_run(session: ProbeSession, probe: Probe) -> None:
    log = probe.run(session, FAULT="0:0:70")
    for run in log.find("run"):
        status, _, text = run.partition(" ")
        assert int(status) == FAILED
        assert "kernel map_" in text
        assert "reads element 70 of x, tensor 'x', which has 100; report" in text
    assert log.find("layer") == []


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("0:2:-5000000000", "reaches element -5000000000 of y, tensor"),
        ("1:0:5", "wrote over the memory for faults"),
        ("0:3:5", "wrote over the memory for faults"),
        ("-7:0:5", "wrote over the memory for faults"),
        ("0:-1:5", "wrote over the memory for faults"),
    ],
)
def test_what_kernels_note_is_checked(fault: str, text: str, probe: Probe) -> None:
    assert all(text in run for run in probe.run(FAULT=fault).find("run"))


def test_memory_for_checks_that_is_missing_is_a_status(probe: Probe) -> None:
    (opened,) = probe.run(FAIL="clCreateBuffer:3:-4").find("open")
    assert opened.startswith(f"{FAILED} ")
    assert "out of memory" in opened
