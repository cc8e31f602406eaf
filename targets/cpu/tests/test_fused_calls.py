"""Epilogues and results in place, on every level: sanitized with gaps between all tensors, and on several workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_levels import SEEN
from test_chains import GRAPHS as CHAINS
from test_epilogue import CASES, STORED, build
from test_placement import GRAPHS
from test_workers import run_both

from mace_core.ir import Array, Graph
from mace_core.levels import Level, with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, case, merge, plan_graph, random_inputs, split_by_graph
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC

pytestmark = pytest.mark.slow

ALL = [*(build(name) for name in CASES), *STORED, *GRAPHS]


def make_inputs(graph: Graph) -> dict[str, Array]:
    rng, inputs = np.random.default_rng(2), random_inputs(graph)
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.quant:
            limits = np.iinfo(tensor.dtype.numpy)
            inputs[name] = rng.integers(limits.min, limits.max, tensor.shape, limits.dtype, endpoint=True)
    return inputs


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", SEEN)
def test_every_level_stays_within_its_tensors(level: str, tmp_path: Path) -> None:
    graphs = [*ALL, *CHAINS.values()]
    merged, chosen = merge("all", graphs), SEEN[level]
    inputs = make_inputs(merged)
    outputs = run_sanitized(merged, chosen, inputs, tmp_path)
    expected = execute(merged, inputs)
    for graph in graphs:
        for name, array in split_by_graph({o: outputs[o] for o in merged.outputs}, graph).items():
            real = expected[f"{graph.name}/{name}"]
            if graph.tensors[name].quant:
                assert np.abs(array.astype(int) - real).max() <= 1, graph.name
            else:
                assert_close(array, real, graph.name)


def run_sanitized(graph: Graph, level: Level, inputs: dict[str, Array], folder: Path) -> dict[str, Array]:
    plan = plan_graph(with_levels(Cpu(), [level]), graph)
    return Sanitized({graph.name: plan}, [level], folder).run(graph.name, inputs)


def test_products_in_plain_loops_stay_within_their_tensors(tmp_path: Path) -> None:
    """Those of doubles and integers, which no vectors compute."""
    shapes = ((2, 5, 7), (7, 3), (3,))
    graphs = [
        case(
            f"plain_{kind}", "MatMul", [np.ones(shape, kind) for shape in shapes], {"low": -9.0, "high": 9.0}
        )
        for kind in ("f8", "i4", "u1")
    ]
    merged = merge("plain", graphs)
    inputs = make_inputs(merged)
    outputs = run_sanitized(merged, GENERIC[0], inputs, tmp_path)
    for name, array in execute(merged, inputs).items():
        if name in outputs:
            assert_close(outputs[name], array, name)


@pytest.mark.exhaustive
def test_workers_change_no_bit(tmp_path: Path) -> None:
    alone, together, counts = run_both(ALL, tmp_path)
    assert len([count for count in counts if count > 1]) >= len(ALL)
    for name, array in alone.items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.exhaustive
def test_sums_of_stored_integers_are_equal_on_all_levels(tmp_path: Path) -> None:
    """Each product is rounded before it is added, on levels with and without a multiply-add instruction."""
    merged = merge("all", STORED)
    inputs = make_inputs(merged)
    results = [run_sanitized(merged, level, inputs, tmp_path / name) for name, level in SEEN.items()]
    for found in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
