"""The driver passes priority and performance hints to the extensions that a device has, or refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_session import Probe, ProbeSession, build_probe, build_stub

pytestmark = pytest.mark.exhaustive

REFUSED, NO_DEVICE = 5, 6
KHRONOS = "cl_khr_priority_hints cl_khr_throttle_hints cl_arm_scheduling_controls"


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build_probe(tmp_path_factory.mktemp("probe"))


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ("opencl.priority=high", ["40c9 40ca"]),
        ("opencl.priority=low;opencl.performance=normal", ["40c9 40cc", "40c2 40c4"]),
        ("opencl.device=gpu", []),
    ],
)
def test_hints_are_told_to_a_context(options: str, properties: list[str], probe: Probe) -> None:
    extensions = "cl_khr_fp64 cl_qcom_perf_hint cl_qcom_priority_hint"
    log = probe.run(ProbeSession(options=options), EXTENSIONS=extensions)
    assert log.find("open") == ["0"]
    assert log.find("property") == properties


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ("opencl.priority=high", ["1096 1"]),
        ("opencl.performance=low;opencl.priority=normal", ["1096 2", "1097 4"]),
        ("opencl.batching=on", ["41e7 1"]),
        ("opencl.batching=off;opencl.performance=high", ["1097 1", "41e7 0"]),
    ],
)
def test_hints_are_told_to_a_queue(options: str, properties: list[str], probe: Probe) -> None:
    log = probe.run(ProbeSession(options=options), EXTENSIONS=KHRONOS)
    assert log.find("open") == ["0"]
    assert log.find("queue property") == properties
    assert log.find("property") == []


def test_a_vendors_own_hint_comes_first(probe: Probe) -> None:
    session = ProbeSession(options="opencl.priority=low")
    log = probe.run(session, EXTENSIONS="cl_khr_priority_hints cl_qcom_priority_hint")
    assert (log.find("property"), log.find("queue property")) == (["40c9 40cc"], [])


def test_a_queue_with_properties_needs_a_function(probe: Probe, tmp_path: Path) -> None:
    """OpenCL 2.0 and an extension have such a function; a library with neither cannot take the hint."""
    older = Probe(probe.program, build_stub(tmp_path, ["-DWITHOUT_PROPERTIES"]))
    session = ProbeSession(options="opencl.priority=low")
    log = older.run(session, EXTENSIONS=KHRONOS, PROPERTIES="1")
    assert (log.find("open"), log.find("queue property")) == (["0"], ["1096 4"])
    failing = {"PROPERTIES": "1", "FAIL": "clGetExtensionFunctionAddressForPlatform:1:-1"}
    for environment in ({}, failing):
        (opened,) = older.run(session, EXTENSIONS=KHRONOS, **environment).find("open")
        assert opened.startswith(f"{NO_DEVICE} ")
        assert "clCreateCommandQueue answered -59" in opened


@pytest.mark.parametrize(
    ("options", "extensions", "text"),
    [
        (
            "opencl.performance=low",
            "cl_qcom_perf_hints cl_qcom_priority_hint",
            "has neither cl_qcom_perf_hint nor cl_khr_throttle_hints; leave opencl.performance out",
        ),
        (
            "opencl.priority=low",
            "cl_qcom_perf_hint",
            "has neither cl_qcom_priority_hint nor cl_khr_priority_hints; leave opencl.priority out",
        ),
        ("opencl.batching=on", "", "has no control of batches in cl_arm_scheduling_controls"),
    ],
)
def test_hints_are_refused_where_nothing_heeds_them(
    options: str, extensions: str, text: str, probe: Probe
) -> None:
    (opened,) = probe.run(ProbeSession(options=options), EXTENSIONS=extensions).find("open")
    assert opened.startswith(f"{REFUSED} ")
    assert text in opened


def test_controls_without_batches_are_refused(probe: Probe) -> None:
    session = ProbeSession(options="opencl.batching=off")
    (opened,) = probe.run(session, EXTENSIONS="cl_arm_scheduling_controls", CONTROLS="14").find("open")
    assert opened.startswith(f"{REFUSED} ")
    assert "no control of batches" in opened
