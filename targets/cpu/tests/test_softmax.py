"""Softmax, LogSoftmax, Hardmax and LpNorm against their numpy references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.ir import Graph
from mace_core.testing.compiled import case, check_graphs, compile_graphs
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

SHAPES = (
    ((1,), 0),
    ((7,), -1),
    ((3, 1), 1),
    ((2, 16), 1),
    ((5, 3, 1001), -1),
    ((70, 5000), -1),
    ((2, 21, 9, 5), 1),
    ((33, 2), 0),
    ((3, 200, 67), 1),
    ((4, 1, 8), 1),
    ((0, 4), 1),
    ((3, 130, 1), 1),
)
OPS: tuple[tuple[str, dict[str, int]], ...] = (
    ("Softmax", {}),
    ("LogSoftmax", {}),
    ("Hardmax", {}),
    ("LpNorm", {"p": 1}),
    ("LpNorm", {"p": 2}),
)


def graphs() -> Iterator[Graph]:
    for op, attrs in OPS:
        for i, (shape, axis) in enumerate(SHAPES):
            yield case(
                f"{op.lower()}{attrs.get('p', '')}_{i}",
                op,
                [np.zeros(shape, np.float32)],
                {**attrs, "axis": axis},
            )


def test_shapes_and_axes(tmp_path: Path) -> None:
    check_graphs(Cpu(), list(graphs()), tmp_path, tolerance=2e-6)


def test_along_every_axis(tmp_path: Path) -> None:
    results = [
        case(f"{op}{i}_{axis}", op, [np.zeros(shape, np.float32)], {"axis": axis})
        for op in ("Softmax", "LogSoftmax", "Hardmax", "LpNorm")
        for i, shape in enumerate([(3, 7, 19), (2, 1000), (5,), (1, 3)])
        for axis in range(len(shape))
    ]
    check_graphs(Cpu(), results, tmp_path)


@pytest.mark.exhaustive
def test_extreme_values(tmp_path: Path) -> None:
    rows = np.array(
        [
            [1e30, -1e30, 3e38, 0, 1],
            [-np.inf, 0, 1, -np.inf, 2],
            [-200, -200, -300, -200, -200],
            [0, 0, 0, 0, 0],
            [2, 5, 5, 1, 5],
        ],
        np.float32,
    )
    result: dict[str, tuple[Graph, Any]] = {}
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        result[f"{op.lower()}_rows"] = case(f"{op.lower()}_rows", op, [rows], {"axis": 1}), rows
        result[f"{op.lower()}_columns"] = (
            case(f"{op.lower()}_columns", op, [rows.T], {"axis": 0}),
            rows.T.copy(),
        )
    zeros = np.zeros((2, 3), np.float32)
    for axis in (0, 1):
        result[f"lp_{axis}"] = case(f"lp_{axis}", "LpNorm", [zeros], {"axis": axis}), zeros
    check_graphs(
        Cpu(),
        [g for g, _ in result.values()],
        tmp_path,
        {n: {"x0": x} for n, (_, x) in result.items()},
        tolerance=2e-6,
    )


def test_nan_is_the_greatest_for_hardmax(tmp_path: Path) -> None:
    x = np.array([[1, np.nan, np.inf, np.nan], [np.nan, 2, 3, 1], [-np.inf] * 4], np.float32)
    results = [case(f"axis{axis}", "Hardmax", [x], {"axis": axis}) for axis in (0, 1)]
    check_graphs(Cpu(), results, tmp_path, {graph.name: {"x0": x} for graph in results})


def test_rows_of_softmax_sum_to_one(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-5, 5, (2, 100_003)).astype(np.float32)
    model = compile_graphs(Cpu(), [case("long", "Softmax", [x])], tmp_path)["long"]
    np.testing.assert_allclose(model.run({"x0": x})["y0"].sum(axis=1, dtype=np.float64), 1, rtol=1e-6)
