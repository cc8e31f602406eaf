"""Convolutions that write their channels into the result of a Concat: no copy, the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, random_inputs, run_merged
from mace_target_cpu import Cpu


def join(name: str, *widths: int, axis: int = -1, kernel: int = 1, group: int = 1) -> Graph:
    """Convolutions of one image with so many results each, joined and read by another one."""
    new, rng = Builder(name), np.random.default_rng(3)
    x = new.input("x", DType.F32, (2, 5, 4, 6))
    pads = (kernel // 2,) * 2
    attrs = {"strides": (1, 1), "pads_before": pads, "pads_after": pads, "dilations": (1, 1), "low": 0.0}
    parts = []
    for width in widths:
        w = new.weight("w", rng.standard_normal((width, kernel, kernel, 6 // group)).astype("f4"))
        parts.append(new.one("Conv", [x, w], {**attrs, "group": group}))
    return new.finish([new.one("Neg", [new.one("Concat", parts, {"axis": axis})])])


def list_kernels(graph: Graph) -> list[str]:
    return [call.kernel.name for call in Cpu().lower(graph).calls]


GRAPHS = [
    join("join_two", 8, 40),
    join("join_windows", 3, 17, 5, kernel=3),
    join("join_groups", 6, 34, group=2),
]


@pytest.mark.slow
def test_channels_in_place_are_those_of_copies(tmp_path: Path) -> None:
    assert [list_kernels(graph) for graph in GRAPHS] == [
        ["conv_f32_part", "conv_f32_part", "neg_f32"],
        ["conv_f32_part", "conv_f32_part", "conv_f32_part", "neg_f32"],
        ["conv_f32_part", "conv_f32_part", "neg_f32"],
    ]
    inputs = {graph.name: random_inputs(graph, 5) for graph in GRAPHS}
    results = run_merged(Cpu(), GRAPHS, tmp_path, inputs)
    for graph in GRAPHS:
        (name,) = graph.outputs
        assert_close(results[graph.name][name], execute(graph, inputs[graph.name])[name], graph.name)


def join_constant() -> Graph:
    """A convolution's results with channels of a constant behind them."""
    new, rng = Builder("join_constant"), np.random.default_rng(3)
    x = new.input("x", DType.F32, (2, 5, 4, 6))
    w = new.weight("w", rng.standard_normal((8, 1, 1, 6)).astype("f4"))
    plain = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1), "group": 1}
    constant = new.weight("c", rng.standard_normal((2, 5, 4, 3)).astype("f4"))
    return new.finish([new.one("Concat", [new.one("Conv", [x, w], plain), constant], {"axis": -1})])


@pytest.mark.exhaustive
def test_constants_among_the_parts_are_copied(tmp_path: Path) -> None:
    graph = join_constant()
    inputs = random_inputs(graph, 5)
    results = run_merged(Cpu(), [graph], tmp_path, {graph.name: inputs})
    (name,) = graph.outputs
    assert_close(results[graph.name][name], execute(graph, inputs)[name], graph.name)


def test_other_axes_and_other_kernels_are_copied() -> None:
    assert "concat" in list_kernels(join_constant())
    assert list_kernels(join("rows", 8, 8, axis=1)) == ["conv_f32", "conv_f32", "concat", "neg_f32"]
    depthwise = join("depthwise", 6, 6, group=6)
    assert "concat" in list_kernels(depthwise)


def test_the_arena_holds_the_joint_tensor_alone() -> None:
    calls = Cpu().lower(join("two", 8, 40)).calls
    assert calls[0].writes == calls[1].writes
    assert [(c.args["width"], c.args["offset"]) for c in calls[:2]] == [(48, 0), (48, 8)]
