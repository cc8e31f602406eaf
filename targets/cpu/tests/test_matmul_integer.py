"""MatMulInteger against its reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.levels import Level, with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, check_graphs, run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.lower import ordered

HERE = [level for level in levels_here(X86) if level.dot == "quads"]

SHAPES = {
    "one": ((3, 33), (33, 21)),
    "row": ((1, 8), (8, 5)),
    "batch": ((2, 5, 7), (2, 7, 3)),
    "broadcast": ((2, 5, 7), (7, 17)),
    "vector": ((9,), (9, 4)),
    "whole": ((13, 64), (64, 33)),
    "wide": ((30, 66), (66, 143)),
}


@pytest.mark.slow
@pytest.mark.parametrize("constant", [True, False])
def test_products(constant: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graphs, given = [], {}
    for name, (a, b) in SHAPES.items():
        for left, right in ((np.int8, np.uint8), (np.uint8, np.int8)):
            arrays = [
                rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
                for t, s in ((left, a), (right, b))
            ]
            arrays += [np.array(7, left), np.array(3, right)]
            graph = case(
                f"{name}_{left.__name__}", "MatMulInteger", arrays, constants=(1, 3) if constant else ()
            )
            graphs.append(graph)
            given[graph.name] = {n: arrays[int(n[1:])] for n in graph.inputs}
    check_graphs(Cpu(), graphs, tmp_path, given)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_products_in_a_proven_order(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "compare_cost", lambda call: 0.0)
    rng = np.random.default_rng(1)
    graphs, given = [], {}
    for rows, depth, columns in [(1, 33, 21), (3, 16, 16), (7, 17, 5), (29, 64, 40), (200, 70, 33)]:
        # Of the largest weights no two fit 16 bits beside each other; of small bytes sixteen do.
        for left, right, spread in (
            (np.int8, np.uint8, 128),
            (np.uint8, np.int8, 128),
            (np.uint8, np.int8, 4),
        ):
            middle = (np.iinfo(right).min + np.iinfo(right).max + 1) // 2
            arrays = [
                (rng.integers(0, 2 * spread, (rows, depth)) + np.iinfo(left).min).astype(left),
                (rng.integers(-spread, spread, (depth, columns)) + middle).astype(right),
                np.array(9, left),
                np.array(5, right),
            ]
            name = f"case_{rows}_{left.__name__}_{spread}"
            graph = case(name, "MatMulInteger", arrays, constants=(1, 3))
            graphs.append(graph)
            given[name] = {n: arrays[int(n[1:])] for n in graph.inputs}
    results = run_merged(Cpu(), graphs, tmp_path, given, [level])
    lowered = [with_levels(Cpu(), [level]).lower(graph, "x86_64") for graph in graphs]
    names = {call.kernel.name for program in lowered for call in program.calls}
    assert names == {"matmul_integer_i8_ordered", "matmul_integer_u8_ordered"}
    for graph in graphs:
        expected = execute(graph, given[graph.name])
        np.testing.assert_array_equal(results[graph.name]["y0"], expected["y0"], graph.name)
