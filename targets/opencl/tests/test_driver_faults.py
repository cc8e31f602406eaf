"""A fault in every function of OpenCL that the driver calls, by a library that stands in for the system's.

The program is built with the sanitizers of addresses and undefined behavior. The stand-in ends it where a
handle is used after its release, or never released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from stub_session import HEADERS, Probe, ProbeSession, build_probe, build_stub

from mace_core.graph_builder import Builder
from mace_core.ir import DType

pytestmark = pytest.mark.slow

NO_DEVICE, STALE, LOST, FAILED = 6, 7, 10, 11
REFUSED = 5
RESOURCES = -5
GONE = -36
RELEASES = re.compile("clRelease")
AT_OPEN = {
    **dict.fromkeys(
        ("clGetPlatformIDs", "clGetDeviceIDs", "clCreateContext", "clCreateCommandQueue"), NO_DEVICE
    ),
    **dict.fromkeys(
        ("clCreateBuffer", "clCreateProgramWithSource", "clBuildProgram", "clCreateKernel"), FAILED
    ),
}
AT_RUN = {
    "clSetKernelArg": 7,
    "clEnqueueNDRangeKernel": 2,
    "clEnqueueWriteBuffer": 1,
    "clEnqueueReadBuffer": 1,
    "clFinish": 2,
    "clWaitForEvents": 1,
}
"""Functions with the number of their first call in a run: opening a session computes its one kernel once."""
AT_WAIT = ("clEnqueueMarkerWithWaitList", "clFlush", "clGetEventInfo")
HARMLESS = ("clGetKernelWorkGroupInfo", "clGetProgramInfo", "clGetProgramBuildInfo", "clEnqueueFillBuffer")
"""Functions without which the driver knows less, and goes on."""
SHARED = (
    "clGetContextInfo",
    "clRetainContext",
    "clGetCommandQueueInfo",
    "clRetainCommandQueue",
    "clRetainMemObject",
    "clGetMemObjectInfo",
    "clSetEventCallback",
)
"""Functions that test_shared_objects.py lets fail."""
ELSEWHERE = (
    "clGetExtensionFunctionAddressForPlatform",
    "clGetDeviceInfo",
    "clCreateProgramWithBinary",
    "clGetEventProfilingInfo",
    "clCreateImage",
    "clCreateSubBuffer",
    "clEnqueueReadImage",
)
"""Functions with a test of their own, or that only closing a session in flight calls."""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build_probe(tmp_path_factory.mktemp("probe"))


def read_functions() -> set[str]:
    text = (HEADERS / "opencl_api.h").read_text(encoding="utf-8")
    return set(re.findall(r"^  X\((cl\w+),", text, re.MULTILINE))


def test_every_function_has_a_case() -> None:
    cases = {*AT_OPEN, *AT_RUN, *AT_WAIT, *HARMLESS, *SHARED, *ELSEWHERE}
    assert cases == {name for name in read_functions() if not RELEASES.match(name)}


def test_a_session_without_faults_gives_all_back(probe: Probe) -> None:
    log = probe.run()
    assert log.find("open") == ["0"]
    assert log.find("run") == ["0", "0"]
    assert set(log.find("part")) == {"opencl: stub, driver 1.0, OpenCL 1.2 stub"}


def test_the_library_stays_in_memory_for_the_next_session(probe: Probe) -> None:
    """A loader that is loaded again may find fewer drivers, see opencl_library.c."""
    assert probe.run().find("loaded") == ["1"]


@pytest.mark.parametrize("function", AT_OPEN)
def test_a_fault_at_open_has_a_status_and_a_text(function: str, probe: Probe) -> None:
    (opened,) = probe.run(FAIL=f"{function}:1:{RESOURCES}").find("open")
    status, _, text = opened.partition(" ")
    assert int(status) == AT_OPEN[function]
    assert "; " in text, "the text says what to do"
    assert function in text or function in ("clGetDeviceIDs", "clBuildProgram")


def test_more_copies_than_the_driver_notes_are_waited_for_in_between(tmp_path: Path) -> None:
    """It notes 16, and a model may have more inputs: it waits for them, and for the rest at the end."""
    builder = Builder("m")
    total, *others = (builder.input(f"x{number}", DType.F32, (2, 50)) for number in range(20))
    for other in others:
        total = builder.one("Add", [total, other])
    many = build_probe(tmp_path, graph=builder.finish([total]))
    assert many.run().find("run") == ["0", "0"]
    for number in (1, 2):
        first, second = many.run(FAIL=f"clWaitForEvents:{number}:{RESOURCES}").find("run")
        assert first.startswith(f"{FAILED} ")
        assert "clWaitForEvents" in first
        assert second == "0"


@pytest.mark.parametrize("function", AT_RUN)
def test_a_run_that_fails_can_be_repeated(function: str, probe: Probe) -> None:
    first, second = probe.run(FAIL=f"{function}:{AT_RUN[function]}:{RESOURCES}").find("run")
    status, _, text = first.partition(" ")
    assert int(status) == FAILED
    assert function in text
    assert second == "0"


@pytest.mark.parametrize("function", [*AT_RUN, "clFlush"])
def test_a_device_that_is_gone_ends_the_session(function: str, probe: Probe) -> None:
    submits = function == "clFlush"
    nth = AT_RUN.get(function, 1)
    first, second = probe.run(ProbeSession(submits=submits), FAIL=f"{function}:{nth}:{GONE}").find("run")
    assert first.startswith(f"{LOST} ")
    assert "the device is gone" in first
    assert not second.startswith("0")


@pytest.mark.parametrize("function", AT_WAIT)
def test_a_submitted_run_that_fails_can_be_repeated(function: str, probe: Probe) -> None:
    first, second = probe.run(ProbeSession(submits=True), FAIL=f"{function}:1:{RESOURCES}").find("run")
    assert first.startswith(f"{FAILED} ")
    assert second == "0"


@pytest.mark.parametrize("function", [*HARMLESS, "clSetKernelArg", "clEnqueueNDRangeKernel"])
def test_what_only_informs_or_warms_up_may_fail(function: str, probe: Probe) -> None:
    """Opening a session computes it once with zeros, so that what the driver compiles late is compiled then."""
    log = probe.run(FAIL=f"{function}:1:{RESOURCES}")
    assert log.find("open") == ["0"]
    assert log.find("run") == ["0", "0"]


def test_waiting_answers_busy_until_the_run_has_ended(probe: Probe) -> None:
    log = probe.run(ProbeSession(runs=1, submits=True), POLLS="60")
    assert log.find("run") == ["0"]
    (busy,) = log.find("busy")
    assert int(busy) >= 2, "each call waits 1 ms, which is ten looks"


def test_a_run_that_the_device_ended_with_an_error_fails(probe: Probe) -> None:
    first, _ = probe.run(ProbeSession(submits=True), STATE="-14").find("run")
    assert first.startswith(f"{FAILED} ")
    assert "-14" in first


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"DEVICES": "-1"}, "of 0 OpenCL platforms none has a device"),
        ({"DEVICES": "0"}, "of 1 OpenCL platforms none has a device"),
        ({"VERSION": "OpenCL 1.1 old"}, "version 1.2 or newer"),
        ({"VERSION": "strange"}, "version 1.2 or newer"),
        ({"FAIL": "clGetDeviceInfo:1:-5"}, "a device of version 1.2 or newer"),
    ],
)
def test_no_device_is_a_status_and_a_text(environment: Mapping[str, str], text: str, probe: Probe) -> None:
    (opened,) = probe.run(**environment).find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert text in opened


def test_the_processor_computes_where_a_fallback_is_allowed(probe: Probe) -> None:
    log = probe.run(ProbeSession(fallback=1), DEVICES="-1")
    assert log.find("run") == ["0", "0"]
    assert set(log.find("output")) == {"3"}
    assert all("fallback" in part and "OpenCL platforms" in part for part in log.find("part"))


def test_the_processor_repeats_a_run_whose_device_was_lost(probe: Probe) -> None:
    log = probe.run(ProbeSession(fallback=2), FAIL=f"clFinish:2:{GONE}")
    assert [run.split()[0] for run in log.find("run")] == ["0", "0"]
    assert set(log.find("output")) == {"3"}


def test_the_log_of_the_compiler_is_quoted_from_its_first_error(probe: Probe) -> None:
    (opened,) = probe.run(FAIL="clBuildProgram:1:-11").find("open")
    assert "error: unknown type name 'flaot'; report" in opened
    assert "warning" not in opened
    long = "x" * 5000 + " error: " + "y" * 5000
    (opened,) = probe.run(FAIL="clBuildProgram:1:-11", LOG=long).find("open")
    assert f"error: {'y' * 100}" in opened
    (opened,) = probe.run(FAIL="clBuildProgram:1:-6").find("open")
    assert "out of memory" in opened


def test_limits_of_the_device_are_checked(probe: Probe) -> None:
    (opened,) = probe.run(GROUP="8").find("open")
    assert opened.startswith(f"{STALE} ")
    assert "groups of 64, and the device has at most 8" in opened
    (opened,) = probe.run(LARGEST="16").find("open")
    assert opened.startswith(f"{FAILED} ")
    assert "at most 16" in opened


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"ARGUMENTS": "47"}, "has 48 bytes of arguments, and the device takes at most 47; fall back"),
        (
            {"LOCAL": "1024", "KERNEL_LOCAL": "1028"},
            "wants 1028 bytes of local memory, and the device has 1024; fall back",
        ),
    ],
)
def test_a_device_of_smaller_limits_than_a_kernel_has_is_named_with_them(
    limits: Mapping[str, str], text: str, probe: Probe
) -> None:
    (opened,) = probe.run(**limits).find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert text in opened
    log = probe.run(ProbeSession(fallback=1), **limits)
    assert set(log.find("output")) == {"3"}, "the processor computes"
    enough = {name: str(int(value) + 4) for name, value in limits.items() if name != "KERNEL_LOCAL"}
    assert probe.run(**{**limits, **enough}).find("open") == ["0"]


def test_a_processor_in_the_place_of_a_gpu_is_named_so(probe: Probe) -> None:
    log = probe.run(TYPE="2")
    assert set(log.find("part")) == {"opencl: stub (a processor, no GPU), driver 1.0, OpenCL 1.2 stub"}
    assert log.find("run") == ["0", "0"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ("opencl.device=gpu", 0),
        ("opencl.device=cpu", NO_DEVICE),
        ("opencl.device=stu", 0),
        ("opencl.device=other", NO_DEVICE),
        ("opencl.device=", REFUSED),
        ("opencl.colour=red", REFUSED),
        (f"opencl.device={'x' * 300}", REFUSED),
        ("opencl.priority=highest", REFUSED),
        ("opencl.performance=", REFUSED),
        ("opencl.batching=maybe", REFUSED),
        ("opencl.batching=on", REFUSED),
        ("opencl.kernel_us=", REFUSED),
        ("opencl.kernel_us=1000000000", REFUSED),
        ("opencl.kernel_us=1x", REFUSED),
        ("opencl.kernel_us=25;opencl.device=gpu", 0),
        ("opencl.library=libnone.so", NO_DEVICE),
        ("opencl.library=libOpenCL.so.1;opencl.device=stub", 0),
    ],
)
def test_options_choose_library_and_device(options: str, status: int, probe: Probe) -> None:
    (opened,) = probe.run(ProbeSession(options=options)).find("open")
    assert int(opened.split()[0]) == status, opened


def test_devices_that_are_not_as_asked_for_are_named(probe: Probe) -> None:
    (opened,) = probe.run(ProbeSession(options="opencl.device=Mali"), DEVICES="2").find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert "no OpenCL device is like opencl.device=Mali; choose among stub, stub, or fall back" in opened


def test_an_incomplete_library_is_named_with_what_it_lacks(probe: Probe, tmp_path: Path) -> None:
    incomplete = Probe(probe.program, build_stub(tmp_path, ["-DclFlush=clFlushX"]))
    # Behind it the search goes on, so that a complete library of this machine may answer.
    log = incomplete.run(ProbeSession(options="opencl.library=libOpenCL.so.1"))
    (opened,) = log.find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert "lacks clFlush" in opened


def test_compiled_programs_are_kept_and_checked(probe: Probe, tmp_path: Path) -> None:
    session = ProbeSession(runs=1, cache_file=str(tmp_path / "entry"))
    assert probe.run(session).find("stored") == [""]
    assert probe.run(session, FAIL="clCreateProgramWithSource:1:-5").find("open") == ["0"], "restored"
    # A binary that the driver does not take, and one of another driver, are compiled again and overwritten.
    refused = probe.run(session, FAIL="clCreateProgramWithBinary:1:-42")
    assert refused.find("open") == ["0"]
    assert refused.find("stored") == [""]
    assert probe.run(session, DRIVER="1.1").find("stored") == [""]
    assert probe.run(session, DRIVER="1.1").find("stored") == []
