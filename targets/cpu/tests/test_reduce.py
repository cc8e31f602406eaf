"""Reductions, ArgMax, ArgMin, CumSum and Cast against their numpy references."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mace_core.levels import Level, with_levels
from mace_core.testing.compiled import case, check_graphs, run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.lower.reduce import REDUCTIONS

BEST, *_, LAST = 2 * levels_here(Cpu().levels("host"))

FORMS = [
    ((2, 7, 5, 19), (1, 2)),
    ((3, 4), (0,)),
    ((3, 40), (1,)),
    ((2, 3, 4, 5), (0, 2)),
    ((6,), (0,)),
    ((2, 1, 3), (0, 1, 2)),
    ((130, 9), (0,)),
]


@pytest.mark.slow
def test_floats(tmp_path: Path) -> None:
    graphs = [
        case(f"{op}{i}{int(keep)}", op, [np.zeros(shape, np.float32)], {"axes": axes, "keepdims": keep})
        for op, (i, (shape, axes)), keep in product(REDUCTIONS, enumerate(FORMS), (True, False))
    ]
    positive = {
        g.name: {"x0": np.random.default_rng(1).uniform(0.1, 1.5, g.tensors["x0"].shape).astype("f4")}
        for g in graphs
        if g.nodes[0].op.name == "ReduceLogSum"
    }
    for level in {BEST, LAST}:
        check_graphs(with_levels(Cpu(), [level]), graphs, tmp_path / str(level.name), positive)


@pytest.mark.slow
def test_integers(tmp_path: Path) -> None:
    ops = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean")
    graphs = [
        case(f"{op}_{d}", op, [np.zeros((3, 4, 2), d)], {"axes": (1,)})
        for op, d in product(ops, ("i4", "i8"))
    ]
    check_graphs(Cpu(), graphs, tmp_path)


@pytest.mark.slow
def test_neighbors_are_reduced_side_by_side(tmp_path: Path) -> None:
    """More of them than are reduced at a time, and some behind those, along one axis and two."""
    x = np.random.default_rng(0).integers(-1000, 1000, (2, 5, 3, 150)).astype(np.int32)
    graphs = [
        case(f"{op.lower()}_{len(axes)}", op, [x], {"axes": axes, "keepdims": False})
        for op, axes in product(("ReduceSum", "ReduceMax", "ReduceL1"), ((1,), (0, 2)))
    ]
    check_graphs(Cpu(), graphs, tmp_path)


def test_args_and_totals(tmp_path: Path) -> None:
    x = np.zeros((3, 4, 5), np.float32)
    graphs = [
        case(f"{op}{axis % 3}{int(last)}", op, [x], {"axis": axis, "last": last, "keepdims": axis != 1})
        for op, axis, last in product(("ArgMax", "ArgMin"), (0, 1, -1), (False, True))
    ]
    graphs += [
        case(f"c{i}", "CumSum", [x], {"axis": axis, "exclusive": e, "reverse": r})
        for i, (axis, e, r) in enumerate(product((0, 1, -1), (False, True), (False, True)))
    ]
    rounded = np.round(np.random.default_rng(0).standard_normal(x.shape)).astype(np.float32)
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": rounded} for g in graphs})


@pytest.mark.slow
def test_casts(tmp_path: Path) -> None:
    types = ("bool", "u8", "i8", "i32", "i64", "f32", "f64")
    numpy = {"bool": "bool", "u8": "u1", "i8": "i1", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}
    graphs = [case(f"{a}_{b}", "Cast", [np.zeros(9, numpy[a])], {"to": b}) for a, b in product(types, types)]
    values = np.array([0, 1, 2, 3.75, 100, 7, 0.5, 0, 1])
    check_graphs(
        Cpu(), graphs, tmp_path, {g.name: {"x0": values.astype(numpy[g.name.split("_")[0]])} for g in graphs}
    )


@pytest.mark.slow
def test_floats_beyond_a_narrow_integer_saturate_and_lose_their_fraction(tmp_path: Path) -> None:
    values = np.array(
        [-np.inf, -1e9, -129, -128.9, -0.9, -0.0, 0.9, 1.5, 127.9, 128, 255.9, 256, 4e4, np.nan]
    )
    x = np.resize(values, 53).astype(np.float32)
    graphs = [case(kind, "Cast", [x], {"to": kind}) for kind in ("i8", "u8", "i16")]
    actual = run_merged(Cpu(), graphs, tmp_path, {g.name: {"x0": x} for g in graphs})
    for kind in (np.int8, np.uint8, np.int16):
        limits, name = np.iinfo(kind), f"{'u' if kind is np.uint8 else 'i'}{8 * np.dtype(kind).itemsize}"
        expected = np.trunc(np.clip(np.nan_to_num(x, nan=0), limits.min, limits.max)).astype(kind)
        assert np.array_equal(actual[name]["y0"], expected), name


@pytest.mark.slow
@pytest.mark.parametrize("level", levels_here(Cpu().levels("host")), ids=lambda level: str(level.name))
def test_extremes_of_runs_of_every_length_keep_nan(tmp_path: Path, level: Level) -> None:
    """Wherever it lies; and infinities of both signs, whose sum is NaN, are no NaN."""
    graphs, inputs = [], {}
    rng = np.random.default_rng(0)
    for count in (2, 63, 64, 65, 81, 128, 200):
        x = rng.standard_normal((5 + count, count)).astype(np.float32)
        x[1, 0], x[2, -1], x[3], x[4, -1] = -np.inf, np.inf, -np.inf, -np.inf
        x[4, 0] = np.inf
        np.fill_diagonal(x[5:], np.nan)
        for op in ("ReduceMax", "ReduceMin"):
            graphs.append(case(f"{op}_{count}", op, [x], {"axes": (1,), "keepdims": False}))
            inputs[graphs[-1].name] = {"x0": x}
    actual = run_merged(with_levels(Cpu(), (level,)), graphs, tmp_path, inputs)
    for g in graphs:
        fold = np.max if g.name.startswith("ReduceMax") else np.min
        assert np.array_equal(actual[g.name]["y0"], fold(inputs[g.name]["x0"], 1), equal_nan=True), g.name


@pytest.mark.slow
def test_extremes_of_columns_keep_nan(tmp_path: Path) -> None:
    graphs, inputs = [], {}
    rng = np.random.default_rng(0)
    for rows in (3, 65, 200):
        x = rng.standard_normal((rows, 19)).astype(np.float32)
        x[0, 1], x[rows // 2, 4], x[-1, 18], x[-1, 2], x[:, 3] = np.nan, np.nan, np.nan, np.inf, -np.inf
        for op in ("ReduceMax", "ReduceMin"):
            graphs.append(case(f"{op}_{rows}", op, [x], {"axes": (0,), "keepdims": False}))
            inputs[graphs[-1].name] = {"x0": x}
    check_graphs(Cpu(), graphs, tmp_path, inputs)


def test_half_precision(tmp_path: Path) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]
    floats = np.concatenate(
        [halves.astype(np.float32), [65519.0, 65520.0, 1e-8, -3e-8, 5.9e-8, 1.0009766, 1e9]]
    ).astype(np.float32)
    graphs = [case("widen", "Cast", [halves], {"to": "f32"}), case("narrow", "Cast", [floats], {"to": "f16"})]
    with np.errstate(over="ignore", invalid="ignore"):
        check_graphs(
            Cpu(), graphs, tmp_path, {"widen": {"x0": halves}, "narrow": {"x0": floats}}, tolerance=0
        )
