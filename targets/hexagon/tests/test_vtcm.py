"""The memory of the vector units: which tensors lie there, and sessions with all, none, or too little of it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from dsp_session import NEVER, SessionProgram, Told, build_session, make_emulator
from emulated import run_here

from mace_core.api import BuildConfig, Part, Region
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant
from mace_core.json_types import JsonValue
from mace_core.part import CallsBody
from mace_core.plan import Plan
from mace_core.testing.compiled import plan_graph, random_inputs
from mace_target_cpu import Cpu
from mace_target_hexagon.options import HexagonOptions
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.vtcm import MAX_KB, describe_vtcm

WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
POINT = {**WINDOW, "pads_before": (0, 0), "pads_after": (0, 0)}
EXPANDED = 12 * 12 * 128
"""Bytes of each tensor around the depthwise convolution."""


def bottleneck(dtype: DType) -> Graph:
    """Expand 16 channels to 128, convolve them depthwise, and project them to 16, as MobileNetV2 does."""
    rng, builder = np.random.default_rng(3), Builder("m")
    zero = 120 if dtype is DType.U8 else -3
    x = builder.input("x", dtype, (1, 12, 12, 16), Quant.of(0.05, zero))
    shapes = [(128, 1, 1, 16), (128, 3, 3, 1), (16, 1, 1, 128)]
    for i, (shape, attrs) in enumerate(zip(shapes, (POINT, {**WINDOW, "group": 128}, POINT), strict=True)):
        values = rng.integers(-127, 128, shape).astype(np.int8)
        weights = values if dtype is DType.I8 else (values.astype(np.int16) + 128).astype(np.uint8)
        w = builder.weight(f"w{i}", weights, Quant.of(0.01, 0 if dtype is DType.I8 else 128))
        b = builder.weight(
            f"b{i}", rng.integers(-500, 500, shape[0]).astype(np.int32), Quant.of(0.01 * 0.05, 0)
        )
        output = builder.reserve_output(
            f"y{i}", replace(builder.tensors["x"].storage, quant=Quant.of(0.05, zero))
        )
        (x,) = builder.add("Conv", [x, w, b], attrs, outputs=[output])
    return builder.finish([x])


class NearHvx(Hvx):
    """A DSP that plans tensors in so many KB of its vector units' memory."""

    def __init__(self, kb: int) -> None:
        self.kb = kb

    def compile(self, region: Region, config: BuildConfig) -> Part:
        part = super().compile(region, config)
        assert isinstance(part.body, CallsBody)
        return replace(part, body=replace(part.body, fast=describe_vtcm(self.kb)))


def plan(dtype: DType, kb: int) -> Plan:
    return plan_graph(NearHvx(kb), bottleneck(dtype), "hexagon-v66")


def test_tensors_that_vectors_read_lie_in_vtcm() -> None:
    assert {*plan(DType.I8, 256).fast.offsets} == {"y0", "y1"}
    assert {*plan(DType.U8, 256).fast.offsets} == {"y0"}, "products read uint8 by scalar loads"


@pytest.mark.parametrize(("kb", "tensors"), [(0, 0), (17, 0), (18, 1), (35, 1), (36, 2)])
def test_no_tensor_lies_behind_the_end(kb: int, tensors: int) -> None:
    fast = plan(DType.I8, kb).fast
    assert len(fast.offsets) == tensors
    assert fast.bytes == tensors * EXPANDED <= kb * 1024


@pytest.mark.parametrize("kb", [-1, MAX_KB + 1, "256", 1.5, True, None])
def test_other_sizes_are_refused(kb: JsonValue) -> None:
    with pytest.raises(
        MaceError, match=re.escape(f"vtcm_kb: {kb!r} is not allowed; write an integer from 0")
    ):
        HexagonOptions.of({"vtcm_kb": kb}, "here")


def test_each_version_of_the_dsp_has_its_size() -> None:
    assert HexagonOptions.of({}, "here").vtcm_kb == 256
    assert HexagonOptions.of({"abi": "hexagon-v68"}, "here").vtcm_kb == 2048
    assert HexagonOptions.of({"abi": "hexagon-v69", "vtcm_kb": 0}, "here").vtcm_kb == 0


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What the CPU's library computes of the inputs of a session."""
    graph = bottleneck(DType.I8)
    outputs = run_here(graph, random_inputs(graph), tmp_path_factory.mktemp("here"))
    return [outputs[name].tobytes() for name in graph.outputs]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    emulator = make_emulator(tmp_path_factory.mktemp("emulator"))
    return build_session(bottleneck(DType.I8), tmp_path_factory.mktemp("session"), emulator)


def list_vtcm(told: Told) -> list[str]:
    return [line for line in told.calls if line.startswith("vtcm")]


@pytest.mark.slow
@pytest.mark.emulator
def test_sessions_take_vtcm_and_give_it_back(session: SessionProgram, expected: list[bytes]) -> None:
    told = session.run(NEVER, 2, 2)
    assert (
        told.said("part")
        == [f"part 0 hexagon: compute DSP through libcdsprpc.so, 4 threads, {2 * EXPANDED} bytes of VTCM"] * 2
    )
    assert list(told.outputs) == expected
    request, release = list_vtcm(told)[:2]
    assert list_vtcm(told) == [request, release] * 2
    assert request == f"vtcm request {2 * EXPANDED}"
    match = re.fullmatch(r"vtcm release, (\d+) bytes were written", release)
    assert match
    # What is written may by chance be what it was before: one byte of 256 if all values are as frequent.
    assert 0.8 * 2 * EXPANDED < int(match[1]) <= 2 * EXPANDED


@pytest.mark.slow
@pytest.mark.emulator
def test_without_vtcm_the_bits_are_the_same(session: SessionProgram, expected: list[bytes]) -> None:
    told = session.run(NEVER, 1, options="hexagon.vtcm=0")
    assert told.said("part")[0].endswith("4 threads"), "nothing is missing that was not asked for"
    assert list_vtcm(told) == []
    assert list(told.outputs) == expected


@pytest.mark.slow
@pytest.mark.emulator
def test_the_manager_of_later_systems_is_asked_where_there_is_one(
    session: SessionProgram, expected: list[bytes]
) -> None:
    told = session.run(NEVER, 2, 2, environment={"MACE_DSP_MANAGER": "1"})
    assert all(line.endswith(f"4 threads, {2 * EXPANDED} bytes of VTCM") for line in told.said("part"))
    assert list(told.outputs) == expected
    asked = [line for line in told.calls if line.startswith(("vtcm request", "resource"))]
    assert asked == [f"resource acquire {2 * EXPANDED}"] * 2, "the older one is not asked as well"
    assert len(list_vtcm(told)) == 2, "released by each session"


@pytest.mark.slow
@pytest.mark.emulator
def test_a_dsp_without_vector_units_computes_in_plain_c_and_says_so(
    session: SessionProgram, expected: list[bytes]
) -> None:
    told = session.run(NEVER, 2, environment={"MACE_DSP_UNITS": "0"})
    assert told.said("part")[0].endswith("1 thread, no vector unit: plain C computes")
    assert list_vtcm(told) == [], "scalar loads from VTCM are slower than others"
    assert told.said("run") == ["run 0 "] * 2
    assert list(told.outputs) == expected


@pytest.mark.slow
@pytest.mark.emulator
def test_the_level_of_the_processor_is_none_of_the_dsp(
    session: SessionProgram, expected: list[bytes]
) -> None:
    level = str(Cpu().levels("host")[-1].name)
    told = session.run(NEVER, 1, environment={"MACE_CPU_LEVEL": level})
    assert told.said("open") == ["open 0 "]
    assert list(told.outputs) == expected


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize(
    ("environment", "calls"),
    [
        ({}, [f"vtcm request {2 * EXPANDED}"]),
        # What the manager refuses, the older function is not asked for, and nothing is released.
        ({"MACE_DSP_MANAGER": "1"}, []),
    ],
    ids=["older function", "manager"],
)
def test_vtcm_that_others_have_is_said_to_be_missing(
    environment: dict[str, str], calls: list[str], session: SessionProgram, expected: list[bytes]
) -> None:
    told = session.run(NEVER, 1, environment={**environment, "MACE_DSP_VTCM": str(2 * EXPANDED - 1)})
    assert told.said("part")[0].endswith(f"4 threads, no VTCM ({2 * EXPANDED} bytes were not free)")
    assert list_vtcm(told) == calls
    assert told.said("run") == ["run 0 "]
    assert list(told.outputs) == expected
