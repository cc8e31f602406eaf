"""Gather, scatter and what else reads positions at run time, against their numpy references, with positions outside too."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Target
from mace_core.attributes import Attribute
from mace_core.ir import Array, Graph
from mace_core.levels import with_levels
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

DTYPES = (np.bool_, np.int16, np.float32, np.float64)
RNG = np.random.default_rng
BEST = with_levels(Cpu(), levels_here(Cpu().levels("host"))[:1])
"""One level, where all kinds of an op stand in one library: a compiler takes most of the time."""


def check(cases: Mapping[str, tuple[Graph, list[Array]]], folder: Path, target: Target = Cpu()) -> None:  # noqa: B008
    """Assert the same bits from the library and the references; the inputs by number."""
    graphs = [graph for graph, _ in cases.values()]
    inputs = {
        graph.name: {f"x{i}": array for i, array in enumerate(arrays)} for graph, arrays in cases.values()
    }
    actual = run_merged(target, graphs, folder, inputs)
    for graph in graphs:
        expected = execute(graph, inputs[graph.name])
        for name in graph.outputs:
            result = actual[graph.name][name]
            np.testing.assert_array_equal(result, expected[name], err_msg=f"{graph.name}/{name}")


class Cases(dict[str, tuple[Graph, list[Array]]]):
    def put(self, op: str, arrays: list[Array], attrs: dict[str, Attribute], outputs: int = 1) -> None:
        name = f"{op.lower()}{len(self)}"
        self[name] = (case(name, op, arrays, attrs, outputs=outputs), arrays)


def indices(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], dtype: type[np.integer] = np.int64
) -> Array:
    """Some negative, some outside on either side."""
    return np.asarray(rng.integers(-2 * count - 3, 2 * count + 3, shape)).astype(dtype)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    return np.asarray(rng.integers(0, 100, shape)).astype(dtype)


def test_gather(tmp_path: Path) -> None:
    rng, cases = RNG(0), Cases()
    for dtype in DTYPES:
        for shape, axis in (((5,), 0), ((4, 3), 0), ((4, 3), -1), ((2, 5, 3), 1), ((2, 1, 5, 6), 2)):
            for where, itype in (((), np.int32), ((4,), np.int64), ((2, 3), np.int8), ((0,), np.int64)):
                data = values(rng, shape, dtype)
                cases.put("Gather", [data, indices(rng, shape[axis], where, itype)], {"axis": axis})
    cases.put("Gather", [np.zeros((0, 3), np.float32), np.zeros((0,), np.int64)], {"axis": 0})
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 3], np.int64)
    cases.put("Gather", [values(rng, (4, 2), np.float32), extremes], {"axis": 0})
    cases.put("Gather", [values(rng, (3000, 40), np.float32), indices(rng, 3000, (2000,))], {"axis": 0})
    check(cases, tmp_path)


def test_gather_elements(tmp_path: Path) -> None:
    rng, cases = RNG(1), Cases()
    for dtype in DTYPES:
        for shape, where, axis in (
            ((5,), (7,), 0),
            ((4, 3), (2, 3), 0),
            ((4, 3), (3, 5), 1),
            ((2, 5, 3), (2, 6, 2), 1),
        ):
            cases.put(
                "GatherElements",
                [values(rng, shape, dtype), indices(rng, shape[axis], where)],
                {"axis": axis},
            )
    cases.put("GatherElements", [values(rng, (4, 3), np.float32), np.zeros((0, 3), np.int32)], {"axis": 0})
    check(cases, tmp_path)


def test_gather_nd(tmp_path: Path) -> None:
    rng, cases = RNG(2), Cases()
    for dtype in DTYPES:
        for shape, where, batch in (
            ((5,), (1,), 0),
            ((4, 3), (3, 2), 0),
            ((4, 3, 2), (2, 3, 1), 0),
            ((2, 4, 3), (2, 5, 1), 1),
        ):
            cases.put("GatherND", [values(rng, shape, dtype), indices(rng, 4, where)], {"batch_dims": batch})
    cases.put(
        "GatherND",
        [values(rng, (2, 3, 4, 5), np.float32), indices(rng, 4, (2, 3, 2), np.int32)],
        {"batch_dims": 2},
    )
    cases.put("GatherND", [values(rng, (2, 3), np.float32), indices(rng, 4, (4, 0), np.int32)], {})
    check(cases, tmp_path)


REDUCTIONS = ("none", "add", "mul", "max", "min")
SCATTERED = (np.int8, np.uint16, np.int32, np.int64, np.float32, np.float64)


def test_scatter(tmp_path: Path) -> None:
    rng, cases = RNG(3), Cases()
    for reduction, dtype in (*product(REDUCTIONS, SCATTERED), ("none", np.bool_)):
        for shape, where, axis in (((5,), (7,), 0), ((4, 3), (2, 3), 0), ((2, 5, 3), (2, 6, 2), -2)):
            arrays = [values(rng, shape, dtype), indices(rng, shape[axis], where), values(rng, where, dtype)]
            cases.put("ScatterElements", arrays, {"axis": axis, "reduction": reduction})
        for shape, depth in (((5,), 1), ((4, 3), 1), ((4, 3, 2), 2), ((2, 3), 0)):
            updates = values(rng, (3, 2, *shape[depth:]), dtype)
            arrays = [values(rng, shape, dtype), indices(rng, 4, (3, 2, depth)), updates]
            cases.put("ScatterND", arrays, {"reduction": reduction})
    for reduction in REDUCTIONS:
        none = [values(rng, (2, 3), np.float32), np.zeros((0, 1), np.int64), np.zeros((0, 3), np.float32)]
        cases.put("ScatterND", none, {"reduction": reduction})
        nan = [np.array([np.nan, 1, 2], np.float32), np.array([0, 1], np.int32)]
        cases.put("ScatterElements", [*nan, np.array([1, np.nan], np.float32)], {"reduction": reduction})
    check(cases, tmp_path, BEST)


def test_topk(tmp_path: Path) -> None:
    rng, cases = RNG(4), Cases()
    for dtype in (np.int8, np.uint8, np.int64, np.float32, np.float64):
        for shape, k, axis in (
            ((1,), 1, 0),
            ((9,), 4, 0),
            ((3, 8), 8, -1),
            ((3, 8, 2), 3, 1),
            ((2, 50), 7, -1),
            ((2, 3), 0, 1),
        ):
            for largest in (True, False):
                cases.put(
                    "TopK",
                    [values(rng, shape, dtype) % 7],
                    {"k": k, "axis": axis, "largest": largest},
                    outputs=2,
                )
    odd = np.array([1, np.nan, -np.inf, np.nan, np.inf, -0.0, 0.0], np.float32)
    cases.put("TopK", [odd], {"k": 7}, outputs=2)
    cases.put("TopK", [odd], {"k": 7, "largest": False}, outputs=2)
    cases.put("TopK", [rng.standard_normal((40, 1000)).astype(np.float32)], {"k": 20}, outputs=2)
    check(cases, tmp_path)


def test_onehot(tmp_path: Path) -> None:
    rng, cases = RNG(5), Cases()
    for dtype in DTYPES:
        for where, axis in (((), 0), ((4,), -1), ((4,), 0), ((2, 3), 1)):
            for itype in (np.int32, np.int64, np.uint8):
                pair = np.array([0, 1]).astype(dtype)
                cases.put(
                    "OneHot",
                    [indices(rng, 5, where, np.int64).astype(itype), pair],
                    {"depth": 5, "axis": axis},
                )
    cases.put("OneHot", [np.array([0]), np.array([0, 1], np.float32)], {"depth": 0})
    check(cases, tmp_path)


def test_trilu(tmp_path: Path) -> None:
    rng, cases = RNG(6), Cases()
    for dtype in DTYPES:
        for shape in ((4, 4), (3, 5), (2, 6, 2), (0, 3)):
            for k in (0, 1, -2, 10**12, -(10**12)):
                cases.put("Trilu", [values(rng, shape, dtype)], {"k": k, "upper": len(cases) % 2 == 0})
    check(cases, tmp_path)


def test_reverse_sequence(tmp_path: Path) -> None:
    rng, cases = RNG(7), Cases()
    for dtype in DTYPES:
        for shape, batch, time in (
            ((4, 3), 0, 1),
            ((4, 3), 1, 0),
            ((2, 5, 3, 2), 2, 0),
            ((2, 5, 3, 2), 1, 3),
        ):
            lengths = rng.integers(-1, shape[time] + 3, shape[batch])
            cases.put(
                "ReverseSequence",
                [values(rng, shape, dtype), lengths],
                {"batch_axis": batch, "time_axis": time},
            )
    check(cases, tmp_path)
