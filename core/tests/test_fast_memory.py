"""Fast memory: which tensors lie there, and sessions with and without it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.api import BuildConfig, Part, Region
from mace_core.errors import MaceError
from mace_core.fast_memory import _Timeline, divide_arena
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Tensor
from mace_core.levels import with_levels
from mace_core.memory import Arena, Span, touches_of
from mace_core.part import CallsBody, FastMemory, MemorySpace
from mace_core.program import Call, Kernel, Program
from mace_core.report import report_plan
from mace_core.run.compile import shared_library
from mace_core.run.native import Config, load
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    CASES,
    generate_library,
    host,
    plan_graph,
    random_inputs,
    with_quick_flags,
)
from mace_core.testing.separate_calls import SeparateCalls
from mace_target_cpu import Cpu

SLOW, QUICK = Kernel("slow", Path("none")), Kernel("quick", Path("none"))
FAST_KERNELS = ("add_f32", "sigmoid_f32")
REFUSED = "mace_config.fast_memory is too small or not aligned"


def gains(call: Call) -> bool:
    return call.kernel == QUICK


def program(*rows: tuple[Kernel, Sequence[str], str, int]) -> Program:
    """Return a program of calls: kernel, tensors read, tensor written, and its bytes."""
    tensors = {"x": Tensor("x", DType.U8, (64,))}
    tensors |= {name: Tensor(name, DType.U8, (size,)) for _, _, name, size in rows}
    calls = tuple(Call(kernel, {}, tuple(reads), (write,)) for kernel, reads, write, _ in rows)
    return Program("p", calls, tensors, {}, {}, ("x",), (rows[-1][2],))


def divide(made: Program, capacity: int, fixed: Sequence[str] = ()) -> tuple[Arena, Arena]:
    memory = FastMemory(MemorySpace("near", 128, 128, capacity=capacity), gains)
    return divide_arena(made, touches_of(made), memory, fixed)


CHAIN = program(
    (SLOW, ["x"], "a", 100),
    (QUICK, ["a"], "b", 300),
    (QUICK, ["b"], "c", 500),
    (SLOW, ["c"], "d", 64),
    (QUICK, ["d"], "o", 64),
)


def test_tensors_lie_in_fast_memory_if_all_their_readers_gain() -> None:
    fast, host = divide(CHAIN, 1 << 20)
    assert {*fast.offsets} == {"a", "b", "d"}
    assert {*host.offsets} == {"c"}, "a slow call reads it"
    assert fast.bytes == 128 + 384, "multiples of 128, and d where a or b was"
    assert host.bytes == 512


def test_no_byte_is_beyond_the_capacity() -> None:
    for capacity in range(0, 700, 64):
        fast, host = divide(CHAIN, capacity)
        assert fast.bytes <= capacity
        assert {*fast.offsets} | {*host.offsets} == {"a", "b", "c", "d"}
        for name, offset in fast.offsets.items():
            assert offset % 128 == 0
            assert offset + CHAIN.tensors[name].bytes <= capacity
    assert {*divide(CHAIN, 400)[0].offsets} == {"b", "d"}, "the larger of two of equal use"


def test_tensors_that_others_use_stay_where_they_are() -> None:
    fast, host = divide(CHAIN, 1 << 20, ["b"])
    assert "b" in host.offsets
    assert {*fast.offsets} == {"a", "d"}


def test_a_tensor_that_is_read_often_comes_first() -> None:
    result = program(
        (SLOW, ["x"], "rare", 256),
        (QUICK, ["rare"], "often", 256),
        (QUICK, ["often", "rare"], "e", 0),
        (QUICK, ["often"], "f", 0),
        (QUICK, ["e", "f", "often", "rare"], "o", 64),
    )
    assert "often" in divide(result, 256)[0].offsets


def test_temporaries_that_nobody_reads_gain_nothing() -> None:
    result = program((QUICK, ["x"], "unread", 64), (QUICK, ["x"], "o", 64))
    assert divide(result, 1 << 20)[0].offsets == {}


class SeparateCpu(SeparateCalls, Cpu):
    """The CPU target without fused calls."""


class NearCpu(SeparateCpu):
    """A CPU with fast memory for what an addition reads, and what it writes in the same place."""

    def compile(self, region: Region, config: BuildConfig) -> Part:
        part = super().compile(region, config)
        assert isinstance(part.body, CallsBody)
        memory = FastMemory(MemorySpace("near", capacity=4096), lambda call: call.kernel.name in FAST_KERNELS)
        return replace(part, body=replace(part.body, fast=memory))


def small_graph() -> Graph:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, 50))
    (a,) = builder.add("Exp", [x], {})
    (b,) = builder.add("Transpose", [a], {"perm": (1, 0)})
    (c,) = builder.add("Transpose", [b], {"perm": (1, 0)})
    (d,) = builder.add("Add", [c, x], {})
    (e,) = builder.add("Sigmoid", [d], {})
    return builder.finish([e])


def test_plans_and_reports_state_fast_memory() -> None:
    plan = plan_graph(NearCpu(), small_graph())
    assert plan.fast.bytes == 448
    assert not {*plan.fast.offsets} & {*plan.host.offsets}
    assert report_plan(plan).spaces == {"fast": 448}
    assert plan_graph(SeparateCpu(), small_graph()).fast.bytes == 0


def aligned(size: int, skipped: int = 0) -> Array:
    """Return bytes that begin `skipped` bytes behind a multiple of 64."""
    memory = np.full(size + 128, 0xA5, np.uint8)
    first = -memory.ctypes.data % 64 + skipped
    return memory[first : first + size]


def configure(memory: Array) -> Config:
    config = Config(ctypes.sizeof(Config))
    config.fast_memory, config.fast_bytes = memory.ctypes.data, memory.size
    return config


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled for one level, which every processor has."""
    target = with_levels(NearCpu(), NearCpu().levels("host")[-1:])
    sources = generate_library([target], [small_graph()])
    return shared_library(with_quick_flags(sources), host(), tmp_path_factory.mktemp("library"), ())


@pytest.mark.slow
def test_results_are_the_same_with_fast_memory_and_without(library: Path) -> None:
    graph = small_graph()
    inputs = random_inputs(graph)
    expected = execute(graph, inputs)[graph.outputs[0]]
    memory = aligned(512)
    for config in (None, configure(memory)):
        model = load(library, CASES, config)["m"]
        np.testing.assert_allclose(model.run(inputs)[graph.outputs[0]], expected, rtol=1e-5)
    assert (memory[:400] != 0xA5).any(), "a tensor lay there"
    assert (memory[448:] == 0xA5).all(), "nothing behind the arena was touched"


@pytest.mark.slow
@pytest.mark.parametrize("memory", [aligned(447), aligned(512, 32)], ids=["short", "skewed"])
def test_fast_memory_that_cannot_hold_the_tensors_is_refused(memory: Array, library: Path) -> None:
    with pytest.raises(MaceError, match=REFUSED):
        load(library, CASES, configure(memory))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40)
)
@settings(max_examples=100, deadline=None)
def test_the_timeline_finds_what_lives_beside(spans: list[tuple[int, int, int]]) -> None:
    results = [Span(f"s{i}", size, first, first + more) for i, (size, first, more) in enumerate(spans)]
    timeline = _Timeline(1 + max(s.last for s in results))
    for i, span in enumerate(results):
        found = [other.name for other in timeline.overlapping(span)]
        assert sorted(found) == sorted(o.name for o in results[:i] if o.overlaps(span))
        timeline.add(span)
