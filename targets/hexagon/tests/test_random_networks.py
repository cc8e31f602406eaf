"""Random networks of int8 and uint8 on the DSP have the bits of the references, and no undefined behavior."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from emulated import Built, run_here
from quantized_networks import random_network

from mace_core.ir import Array, Graph
from mace_core.levels import with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, plan_graph
from mace_core.testing.sanitized import Sanitized
from mace_target_hexagon.isa import PLAIN
from mace_target_hexagon.processor import Hvx

TOGETHER = 50
"""Networks of one program: the compiler starts once for all."""


def draw_inputs(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    limits = {name: np.iinfo(graph.tensors[name].dtype.numpy) for name in graph.inputs}
    return {
        name: rng.integers(limit.min, limit.max + 1, graph.tensors[name].shape).astype(limit.dtype)
        for name, limit in limits.items()
    }


def merge_networks(seeds: Sequence[int]) -> Graph:
    return merge("networks", [random_network(seed) for seed in seeds])


def assert_references(graph: Graph, folder: Path, levels: Sequence[str] = ("hvx",)) -> None:
    """Assert that the DSP and this machine's CPU give the bits of the references in numpy."""
    inputs = draw_inputs(graph)
    expected = execute(graph, inputs)
    built = Built.from_graph(graph, folder, levels)
    ordered = [inputs[name] for name in graph.inputs]
    results = {f"dsp: {level}": built.run(ordered, level) for level in levels}
    results["cpu"] = run_here(graph, inputs, folder / "here")
    for where, outputs in results.items():
        for name, array in outputs.items():
            differing = int((array != expected[name]).sum())
            assert differing == 0, f"{where}: {differing} of {array.size} elements of {name} differ"


@pytest.mark.slow
@pytest.mark.emulator
def test_a_handful_have_the_bits_of_the_references(tmp_path: Path) -> None:
    assert_references(merge_networks(range(8)), tmp_path, ("hvx", "plain"))


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, int(os.environ.get("MACE_FUZZ", "1000")), TOGETHER))
def test_random_networks_have_the_bits_of_the_references(first: int, tmp_path: Path) -> None:
    assert_references(merge_networks(range(first, first + TOGETHER)), tmp_path)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_plain_kernels_have_no_undefined_behavior(tmp_path: Path) -> None:
    """The level without vectors, compiled for this machine with sanitizers."""
    plain = with_levels(Hvx(), [PLAIN])
    graph = merge_networks(range(100, 124))
    plans = {graph.name: plan_graph(plain, graph, "hexagon-v66")}
    sanitized = Sanitized(plans, [PLAIN], tmp_path / "sanitized")
    inputs = draw_inputs(graph)
    expected = run_here(graph, inputs, tmp_path / "here")
    for name, array in sanitized.run(graph.name, inputs).items():
        assert (array == expected[name]).all(), name
