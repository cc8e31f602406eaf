"""Times of operators beside the peak of their level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Target
from mace_core.compilation import CompiledModel
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.levels import Level
from mace_core.program import Call, Kernel
from mace_core.run.operators import (
    OperatorTime,
    Peak,
    combine,
    count_products,
    find_level,
    multiply_adds,
    show_operators,
)
from mace_core.run.results import LayerTime, Timing
from mace_core.testing.compiled import plan_graph
from mace_target_cpu import Cpu

WINDOW = {"strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
KERNEL = Kernel("some", Path("some.c.in"), ())


def convolution(group: int = 1) -> Graph:
    """4 x 4 x 6 -> 2 x 2 x 8 by windows of 1 x 2, then a product 32 -> 5."""
    new = Builder("net")
    x = new.input("x", DType.F32, (1, 4, 4, 6))
    w = new.weight("w", np.ones((8, 1, 2, 6 // group), np.float32))
    conv = new.one("Conv", [x, w], {**WINDOW, "group": group})
    flat = new.one("Reshape", [conv], {"shape": (1, 32)})
    product = new.one("MatMul", [flat, new.weight("v", np.ones((32, 5), np.float32))])
    return new.finish([new.one("Relu", [product])])


def call(node: str, *sources: str) -> Call:
    return Call(KERNEL, {}, (), (), node=node, sources=sources)


@pytest.mark.parametrize(("group", "expected"), [(1, 32 * 2 * 6), (2, 32 * 2 * 3)])
def test_multiply_adds_are_those_of_results_times_the_depth_of_a_sum(group: int, expected: int) -> None:
    graph = convolution(group)
    counts = {node.op.name: multiply_adds(node, graph) for node in graph.nodes}
    assert counts == {"Conv": expected, "Reshape": 0, "MatMul": 32 * 5, "Relu": 0}


def test_products_count_for_the_call_of_their_name_or_the_one_that_took_them_in() -> None:
    graph = convolution()
    nodes = tuple(replace(n, name=n.op.name, sources=(n.op.name.lower(),)) for n in graph.nodes)
    named = replace(graph, nodes=nodes)
    plain = [call("Conv", "conv"), call("Conv", "conv"), call("MatMul", "matmul"), call("Relu", "relu")]
    assert count_products(named, plain) == [0, 384, 160, 0]
    merged = [call("Conv", "conv"), call("Relu", "matmul", "relu")]
    assert count_products(named, merged) == [384, 160]


def compiled(target: Target | None = None) -> tuple[CompiledModel, list[LayerTime]]:
    graph = convolution()
    plan = plan_graph(target or Cpu(), graph)
    layers = [
        LayerTime(one.node, one.kernel.name, 100) for one in plan.program.calls if one.is_made_at("sse2")
    ]
    return CompiledModel(Model("net", ()), graph, (), plan, (), ()), layers


def test_the_bound_is_the_longer_of_arithmetic_and_memory() -> None:
    model, layers = compiled()
    timing = Timing("net", (1.0,), 2, tuple(layers))
    by_arithmetic = list(combine(model, timing, "sse2", Peak(4, 1, 1e9)))
    assert sum(time.macs for time in by_arithmetic) == 384 + 160
    conv = next(time for time in by_arithmetic if time.macs == 384)
    assert (conv.peak_macs, conv.bound_ns, conv.rate) == (8, 384 / 8, 3.84)
    by_memory = list(combine(model, timing, "sse2", Peak(1e9, 1, 2)))
    conv = next(time for time in by_memory if time.macs == 384)
    assert conv.bytes >= 4 * (96 + 8 * 12 + 32)
    assert conv.bound_ns == conv.bytes / 4
    unknown = list(combine(model, timing, "sse2", Peak(0, 0, 0)))
    assert {time.bound_ns for time in unknown} == {0.0}


def test_products_of_bfloat16_have_a_peak_of_their_own() -> None:
    rounded = Cpu().configure(Model("net", (), keys={"target_options": {"cpu": {"arithmetic": "bf16"}}}))
    for target, expected in ((Cpu(), {3.0}), (rounded, {3.0, 7.0})):
        model, layers = compiled(target)
        timing = Timing("net", (1.0,), 1, tuple(layers))
        times = combine(model, timing, "sse2", Peak(3, 5, 1, 7))
        assert {time.peak_macs for time in times if time.macs} == expected


def test_a_library_of_another_model_is_refused() -> None:
    model, layers = compiled()
    timing = Timing("net", (1.0,), 1, tuple(layers[1:]))
    with pytest.raises(MaceError, match="makes other calls than the deployment says; build it again"):
        list(combine(model, timing, "sse2", Peak(1, 1, 1)))


def test_the_level_is_the_one_that_the_library_names() -> None:
    levels = [Level(name, (), "", Path("none")) for name in ("fast", "base")]
    assert find_level("cpu: base", [levels]) is levels[1]
    with pytest.raises(MaceError, match="'cpu: other', which is no level of a target"):
        find_level("cpu: other", [levels])


def test_the_table_shows_shares_and_a_line_for_all() -> None:
    times = [
        OperatorTime("m", "conv", "conv_f32", "base", 2000, 40_000, 8, 40.0, 1000.0),
        OperatorTime("m", "soft", "softmax", "base", 500, 0, 8, 40.0, 0.0),
    ]
    lines = [line.split() for line in show_operators(times).splitlines() if line.strip()]
    assert lines[0] == ["m", "at", "base"]
    assert ["conv", "conv_f32", "2.0", "0.04", "20.0", "50", "1.0", "50"] in lines
    assert ["soft", "softmax", "0.5", "-", "-", "-", "-", "-"] in lines
    assert ["all", "2.5", "0.04", "1.0", "40"] in lines
