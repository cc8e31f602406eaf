"""Trees, distances, couplings and maps of labels against their numpy references, and trees that could not end."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from mace_core.ir import Array, Graph
from mace_core.ops import tree_ensemble
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, run_merged
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

FEATURES = 7


def forest(
    rng: np.random.Generator, dtype: type[np.floating], codes: tuple[int, ...], outputs: int
) -> list[Array]:
    """Splits, links, modes, roots, targets, weights of random trees.

    Splits are small numbers, so that features meet them.
    """
    links: list[list[int]] = []
    roots, targets = [], []

    def grow(depth: int) -> int:
        at = len(links)
        links.append([tree_ensemble.LEAF, 0, 0])
        if depth and rng.random() < 0.8:
            links[at] = [int(rng.integers(FEATURES)), grow(depth - 1), grow(depth - 1)]
        else:
            held = rng.integers(0, outputs, rng.integers(0, 4))
            links[at] = [tree_ensemble.LEAF, len(targets), len(targets) + len(held)]
            targets.extend(held)
        return at

    roots = [grow(depth) for depth in (0, 1, 3, 5, 6)]
    count = len(links)
    arrays = (
        rng.integers(0, 4, count),
        links,
        rng.choice(codes, count),
        roots,
        targets,
        rng.standard_normal(len(targets)),
    )
    kinds = (dtype, np.int32, np.uint8, np.int32, np.int64, dtype)
    return [np.asarray(a, k) for a, k in zip(arrays, kinds, strict=True)]


def rows(rng: np.random.Generator, dtype: type[np.floating]) -> Array:
    x = rng.integers(0, 4, (33, FEATURES)).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def check(cases: list[tuple[Graph, list[Array]]], folder: Path, rtol: float = 0) -> None:
    inputs: dict[str, dict[str, Array]] = {}
    for graph, arrays in cases:
        inputs[graph.name] = {f"x{i}": a for i, a in enumerate(arrays) if f"x{i}" in graph.inputs}
    assert len(inputs) == len(cases)
    actual = run_merged(Cpu(), [graph for graph, _ in cases], folder, inputs)
    for graph, _ in cases:
        result, expected = actual[graph.name]["y0"], execute(graph, inputs[graph.name])["y0"]
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=0, err_msg=graph.name)


def test_trees(tmp_path: Path) -> None:
    rng, cases = np.random.default_rng(0), []
    every = tuple(range(6))
    plain = [(np.float32, (code,), "sum", False) for code in every]
    mixed = [
        (np.float32, (*every, *(8 + c for c in every)), aggregate, True)
        for aggregate in get_args(tree_ensemble.Aggregate)
    ]
    others = [
        (np.float64, (0,), "average", False),
        (np.float64, every, "sum", True),
        (np.float32, (8,), "sum", False),
    ]
    for dtype, codes, aggregate, has_base in (*plain, *mixed, *others):
        trees = forest(rng, dtype, codes, 3)
        base = [rng.standard_normal(3).astype(dtype)] * has_base
        arrays = [rows(rng, dtype), *trees, *base]
        attrs = {"outputs": 3, "aggregate": aggregate}
        cases.append(
            (
                case(
                    f"trees{len(cases)}",
                    "TreeEnsemble",
                    arrays,
                    attrs,
                    constants=tuple(range(1, len(arrays))),
                ),
                arrays,
            )
        )
    many = [np.tile(rows(rng, np.float32), (100, 1)), *forest(rng, np.float32, (0,), 2)]
    cases.append((case("many", "TreeEnsemble", many, {"outputs": 2}, constants=tuple(range(1, 7))), many))
    check(cases, tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        ((1, (0, 1)), 0, "a child does not lie after its parent"),
        ((1, (0, 2)), 1 << 30, "a child does not lie after its parent"),
        ((1, (0, 0)), FEATURES, "reads a feature"),
        ((1, (0, 0)), -2, "reads a feature"),
        ((2, 0), 6, "unknown mode"),
        ((3, 0), 3, "a root is no node"),
        ((4, 0), 2, "belongs to none of 2 outputs"),
        ((1, (1, 2)), 9, "weights that do not exist"),
    ],
)
def test_trees_that_lead_astray_are_refused(place: tuple[int, object], value: int, reason: str) -> None:
    x = np.zeros((1, FEATURES), np.float32)
    links = np.array([[0, 1, 2], [-1, 0, 1], [-1, 1, 2]], np.int64)
    trees = [
        np.zeros(3, np.float32),
        links,
        np.zeros(3, np.int64),
        np.zeros(1, np.int64),
        np.zeros(2, np.int64),
        np.ones(2, np.float32),
    ]
    arrays = [x, *trees]
    trees[place[0]][place[1]] = value
    graph = case("bad", "TreeEnsemble", arrays, {"outputs": 2}, constants=tuple(range(1, 7)))
    assert reason in str(Cpu().refuses(graph.nodes[0], graph))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances(dtype: type[np.floating], tmp_path: Path) -> None:
    rng, cases = np.random.default_rng(2), []
    for n, m, k in ((1, 1, 1), (3, 5, 4), (2, 9, 31), (40, 50, 64), (1, 300, 13), (0, 3, 2), (2, 3, 0)):
        arrays = [rng.standard_normal((n, k)).astype(dtype), rng.standard_normal((m, k)).astype(dtype)]
        cases.append((case(f"distance{len(cases)}", "SquaredDistance", arrays), arrays))
    check(cases, tmp_path, 1e-6 if dtype is np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coupling(dtype: type[np.floating], tmp_path: Path) -> None:
    rng, cases = np.random.default_rng(3), []
    for classes in (2, 3, 4, 11):
        arrays = [rng.uniform(1e-7, 1 - 1e-7, (20, classes * (classes - 1) // 2)).astype(dtype)]
        arrays[0][0] = 0.5
        arrays[0][1] = 1e-7
        cases.append((case(f"coupling{classes}", "PairwiseCoupling", arrays, {"classes": classes}), arrays))
    check(cases, tmp_path, 1e-6 if dtype is np.float32 else 1e-10)


def test_maps(tmp_path: Path) -> None:
    rng, cases = np.random.default_rng(4), []
    for kind in (np.int64, np.int32, np.uint8, np.float32, np.float64):
        for value in (np.int64, np.float32):
            for count in (0, 1, 2, 17):
                keys = np.unique(rng.integers(0, 60, count)).astype(kind)
                if np.issubdtype(kind, np.floating) and count > 1:
                    keys[-1] = np.nan
                x = rng.integers(0, 60, (4, 9)).astype(kind)
                x[0] = keys[0] if count else 0
                if np.issubdtype(kind, np.floating):
                    x[1, :4] = np.nan, np.inf, -np.inf, -0.0
                arrays = [x, keys, rng.integers(0, 90, len(keys)).astype(value), np.asarray(-1, value)]
                cases.append((case(f"map{len(cases)}", "MapValues", arrays, constants=(1, 2, 3)), arrays))
    # Behind the last key lie zeros, which must not be taken for a key; nor any value for that of a lower one.
    for kind in (np.int32, np.int64, np.float32):
        arrays = [
            np.array([0, 5, -4, -3, -1], kind),
            np.array([-3, -2, -1], kind),
            np.array([1, 2, 3]),
            np.asarray(7),
        ]
        cases.append((case(f"map{len(cases)}", "MapValues", arrays, constants=(1, 2, 3)), arrays))
    check(cases, tmp_path)


def test_maps_without_order_are_refused() -> None:
    arrays = [np.zeros(3, np.int64), np.array([2, 1]), np.array([0, 1]), np.asarray(7)]
    graph = case("bad", "MapValues", arrays, constants=(1, 2, 3))
    assert "ascending" in str(Cpu().refuses(graph.nodes[0], graph))
