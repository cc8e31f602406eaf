"""Kernels that are enqueued in slices, because their time is limited, and queues with a limit of calls."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from opencl_device import require_device
from stub_session import Probe, ProbeSession, build_probe

from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.native import Config, LoadedModel
from mace_core.testing.compiled import generate_library, load_library, merge, random_inputs
from mace_core.testing.samples import samples
from mace_target_opencl.limits import QueueLimits
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

KERNELS = Path(__file__).parents[1] / "src" / "mace_target_opencl" / "kernels"
FAILED = 11


def four_calls() -> Graph:
    """Return four calls that depend on each other, each of 300 groups that are not shared by work-items."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (300, 200))
    for axis in (1, 0, 1, 0):
        x = builder.one("Softmax", [x], {"axis": axis})
    return builder.finish([x])


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    target = Opencl(OpenclOptions(limits=QueueLimits(is_brief=True, window=3)))
    return build_probe(tmp_path_factory.mktemp("limited"), graph=four_calls(), target=target)


def read_slices(lines: list[str]) -> list[tuple[int, int, int]]:
    """Return (offset, size, group) of each enqueue."""
    slices = [tuple(map(int, line.split())) for line in lines]
    assert all(len(numbers) == 3 for numbers in slices)
    return [(numbers[0], numbers[1], numbers[2]) for numbers in slices]


def test_keys_of_the_model_set_the_limits() -> None:
    keys = {"limit_opencl_kernel_time": 1, "opencl_queue_window_size": 8}
    assert OpenclOptions.of_model(Model("m", (), keys=keys)).limits == QueueLimits(True, 8)
    assert OpenclOptions.of_model(Model("m", ())).limits == QueueLimits(False, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ns", "count"), [("700", 1), ("1000000", 1), ("1000001", 2), ("6900000", 7), ("9100000", 10)]
)
def test_a_long_call_is_cut_into_slices_that_cover_it(ns: str, count: int, limited: Probe) -> None:
    log = limited.run(ProbeSession(runs=1), SHOW="1", NS=ns)
    assert log.find("run") == ["0"]
    slices = read_slices(log.find("enqueue"))[-4 * count :]
    for first in range(0, len(slices), count):
        behind = 0
        for offset, size, _ in slices[first : first + count]:
            assert offset == behind
            behind += size
        assert behind == sum(size for _, size, _ in slices[first : first + count])
    # A nanosecond by its events: without any, the clock on the wall decides, and that of a busy machine cuts.
    whole = read_slices(limited.run(ProbeSession(runs=1), SHOW="1", NS="1").find("enqueue"))[-4:]
    assert [sum(size for _, size, _ in slices[i : i + count]) for i in range(0, len(slices), count)] == [
        size for _, size, _ in whole
    ]


@pytest.mark.exhaustive
def test_a_call_has_no_more_slices_than_groups(limited: Probe) -> None:
    log = limited.run(ProbeSession(runs=1, options="opencl.kernel_us=1"), SHOW="1", NS="999999999")
    slices = read_slices(log.find("enqueue"))
    assert log.find("run") == ["0"]
    assert all(size == max(group, 1) for _, size, group in slices[-20:])


@pytest.mark.exhaustive
def test_an_option_of_the_session_comes_before_the_build(limited: Probe) -> None:
    log = limited.run(ProbeSession(runs=1, options="opencl.kernel_us=0"), SHOW="1", NS="5000000")
    assert [offset for offset, _, _ in read_slices(log.find("enqueue"))] == [0] * 8, "warming up, and a run"


@pytest.mark.slow
def test_the_queue_is_emptied_when_it_is_full(limited: Probe) -> None:
    # A nanosecond by its events: the clock on the wall of a busy machine would cut calls.
    log = limited.run(ProbeSession(runs=1), SHOW="1", NS="1")
    steps = [line.split()[0] for line in log.lines if line.startswith(("enqueue", "finish", "open"))]
    run = steps[steps.index("open") + 1 :]
    assert run == ["enqueue", "enqueue", "enqueue", "finish", "enqueue", "finish"]


@pytest.mark.exhaustive
def test_a_slice_that_fails_fails_the_run(limited: Probe) -> None:
    session = ProbeSession(options="opencl.kernel_us=1")
    # Four calls warm up and four are measured; the second slice of the first call of the run fails.
    first, second = limited.run(session, NS="5000", FAIL="clEnqueueNDRangeKernel:10:-5").find("run")
    assert first.startswith(f"{FAILED} ")
    assert second == "0"


@pytest.mark.exhaustive
def test_what_comes_from_a_cache_is_measured_too(limited: Probe, tmp_path: Path) -> None:
    session = ProbeSession(runs=1, cache_file=str(tmp_path / "entry"))
    stored = read_slices(limited.run(session, SHOW="1", NS="2000000").find("enqueue"))
    restored = limited.run(session, SHOW="1", NS="2000000", FAIL="clCreateProgramWithSource:1:-5")
    assert restored.find("open") == ["0"], "restored"
    assert read_slices(restored.find("enqueue")) == stored


def test_kernels_number_their_groups_with_the_offset_of_the_slice() -> None:
    """A template that asks the device would compute the first slice again in each: `group(axis)` is right."""
    forbidden = re.compile(r"get_(group_id|num_groups|global_size)\b")
    assert [path.name for path in KERNELS.glob("*.cl.in") if forbidden.search(path.read_text("utf-8"))] == []


def every_kind() -> Graph:
    """Return tiles of products, rows that work-items share, windows, elements, and a recurrent op."""
    builder = Builder("kinds")
    rng = np.random.default_rng(7)
    x = builder.input("x", DType.F32, (1, 96, 130))
    w = builder.weight("w", rng.normal(size=(130, 128)).astype(np.float32))
    product = builder.one("MatMul", [x, w])
    image = builder.one("Reshape", [product], {"shape": (1, 24, 32, 16)})
    filters = builder.weight("filters", rng.normal(size=(20, 3, 3, 16)).astype(np.float32))
    window = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    images = builder.one("Conv", [image, filters], window)
    outputs = [
        builder.one("Softmax", [product], {"axis": 2}),
        builder.one("Tanh", [builder.one("Conv", [images, builder.weight("f", filters_of(rng))], window)]),
        builder.one("Transpose", [x], {"perm": (0, 2, 1)}),
    ]
    return merge("kinds", [builder.finish(outputs), samples("LSTM", [DType.F32])[0]])


def filters_of(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(64, 3, 3, 20)).astype(np.float32)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> list[LoadedModel]:
    """Sessions of one library: as one, in some slices, and in as many as there are groups."""
    require_device()
    sources = generate_library([Opencl()], [every_kind()])
    return [
        load_library(
            sources,
            tmp_path_factory.mktemp("slices"),
            config=Config(ctypes.sizeof(Config), options=options),
        )["kinds"]
        for options in (b"opencl.kernel_us=0", b"opencl.kernel_us=40", b"opencl.kernel_us=1")
    ]


@pytest.mark.device
@pytest.mark.exhaustive
def test_slices_compute_the_same_bits(sessions: list[LoadedModel]) -> None:
    whole, *others = sessions
    for seed in range(2):
        inputs = random_inputs(every_kind(), seed)
        expected = whole.run(inputs)
        for session in others:
            outputs = session.run(inputs)
            for name, array in expected.items():
                assert np.isfinite(array).all(), name
                assert outputs[name].tobytes() == array.tobytes(), name
