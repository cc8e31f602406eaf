"""Products of bytes whose sums stay in 16 bits because the rows' own bytes are small: found at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import storage

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.levels import Level, with_levels
from mace_core.testing.compiled import plan_graph, run_merged
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.lower import ordered

HERE = [level for level in levels_here(X86) if level.dot == "quads"]
HALF, WHOLE = 8, 16
"""Elements whose products are added in 16 bits together, a half and all of a window."""


def product_of(name: str, matrix: Array, rows: int, dtype: DType = DType.I8, zero: int = 0) -> Graph:
    """Return a product of rows of bytes with a matrix [depth, columns], whose sums are its result.

    dtype: of the rows.  zero: the zero point of the matrix.
    """
    new = Builder(name)
    depth, columns = matrix.shape
    x = new.input("x", dtype, (rows, depth), Quant.of(1.0, -128 if dtype == DType.I8 else 0))
    w = new.weight("w", matrix, Quant.of(1.0, zero))
    b = new.weight("b", np.zeros(columns, np.int32), Quant.of(1.0, 0))
    return new.finish(
        new.add("MatMul", [x, w, b], outputs=[new.reserve_output("y", storage(DType.I32, 1.0))])
    )


def check_products(
    level: Level,
    cases: dict[str, tuple[Array, Array]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    dtype: DType = DType.I8,
    zero: int = 0,
) -> None:
    """Compare products of unsigned bytes [rows, depth] with matrices with those of 64 bits."""
    # The order of sums is taken wherever there is one, whatever it costs.
    monkeypatch.setattr(ordered, "SLOT_COST", 0.0)
    graphs = [product_of(name, matrix, len(a), dtype, zero) for name, (a, matrix) in cases.items()]
    lowest = -128 if dtype == DType.I8 else 0
    inputs = {name: {"x": (a + np.int16(lowest)).astype(dtype.numpy)} for name, (a, _) in cases.items()}
    results = run_merged(Cpu(), graphs, folder, inputs, [level])
    for name, (a, matrix) in cases.items():
        exact = a.astype(np.int64) @ (matrix.astype(np.int64) - zero)
        np.testing.assert_array_equal(results[name]["y"], exact, name)


def at_the_bound(elements: int, excess: int, sign: int) -> tuple[Array, Array]:
    """Return rows and weights of which the sums of `elements` in 16 bits are 32767 plus the excess.

    Of each quad of weights the first two elements are one lane, and the other two another one, which has none.
    """
    rows, depth, columns = 24, 64, 32
    matrix, a = np.zeros((depth, columns), np.int8), np.zeros((rows, depth), np.uint8)
    lane = [k for k in range(elements) if k % 4 < 2]
    # The last weight is 1, so that its byte makes the sum what it should be.
    target, others = (32767 if sign > 0 else 32768) + excess, lane[:-1]
    weight = 255 // len(others)
    value = (target - 1) // (weight * len(others))
    matrix[others], a[:, others] = sign * weight, value
    matrix[lane[-1]], a[:, lane[-1]] = sign, target - value * weight * len(others)
    assert (a[0].astype(int) @ matrix[:, 0].astype(int)) == sign * target
    # Other rows have less, so that the bounds are those of one row.
    a[1::2] //= 2
    return a, matrix


def random_rows(random: np.random.Generator, rows: int, depth: int) -> Array:
    """Return unsigned bytes of channels with ranges of their own, a few of which reach 255."""
    largest = random.integers(1, 256, depth) * random.choice([0.2, 0.5, 1.0])
    a = random.random((rows, depth)) ** 2 * largest
    a[random.random((rows, depth)) < 0.002] = 255
    return np.rint(a).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_sums_at_the_bound_are_exact(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        f"bound_{elements}_{excess + 260}_{sign + 1}": at_the_bound(elements, excess, sign)
        for elements in (HALF, WHOLE)
        for excess in (-260, -2, -1, 0, 1, 2, 250)
        for sign in (1, -1)
    }
    check_products(level, cases, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_drawn_products_are_exact(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(11)
    cases = {}
    for number in range(60):
        rows, depth = int(random.integers(2, 300)), int(random.integers(1, 140))
        columns = int(random.integers(1, 70))
        weights = random.normal(0, random.choice([10, 25, 36, 60]), (depth, columns))
        matrix = np.clip(np.rint(weights), -128, 127).astype(np.int8)
        if number % 10 == 0:
            matrix[:] = random.choice([-128, 127])
        cases[f"drawn_{number}"] = random_rows(random, rows, depth), matrix
    check_products(level, cases, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_rows_behind_the_first_block_have_bounds_of_their_own(
    level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first rows are small, so that sums in 16 bits are chosen; a single later row is as large as bytes are.
    a = np.full((3 * ordered.BOUND_ROWS, 64), 3, np.uint8)
    a[2 * ordered.BOUND_ROWS + 5] = 255
    matrix = np.random.default_rng(2).integers(-128, 128, (64, 48)).astype(np.int8)
    check_products(level, {"late": (a, matrix)}, tmp_path, monkeypatch)


def narrow_rows(random: np.random.Generator, rows: int, depth: int) -> Array:
    """Return unsigned bytes that are large, but span little in each channel."""
    span = random.integers(1, 120, depth)
    least = random.integers(0, 256 - span)
    return (least + random.integers(0, span + 1, (rows, depth))).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "zero"), [(DType.I8, 0), (DType.U8, 0), (DType.U8, 3)])
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_rows_less_their_least_bytes_are_exact(
    level: Level, dtype: DType, zero: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are changed where they were copied (int8) and where the tensor is read in place (uint8)."""
    random = np.random.default_rng(5)
    cases = {}
    # Depths end anywhere in a window and in a quad.
    for depth in (3, 16, 18, 24, 29, 32, 44, 61, 64):
        for rows in (12, 97, 250):
            matrix = random.integers(-128, 128, (depth, 40)).astype(np.int8)
            cases[f"narrow_{depth}_{rows}"] = narrow_rows(random, rows, depth), matrix
    # Bytes at their end, and rows behind the first block that span all.
    cases["largest"] = np.full((100, 48), 255, np.uint8), np.full((48, 33), -128, np.int8)
    late = narrow_rows(random, 300, 24)
    late[150], late[151] = 0, 255
    cases["late"] = late, np.full((24, 64), 127, np.int8)
    check_products(level, cases, tmp_path, monkeypatch, dtype=dtype, zero=zero)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_rows_of_groups_are_exact(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie further apart in the tensor than their depth, and what they lose is that of their own group."""
    monkeypatch.setattr(ordered, "SLOT_COST", 0.0)
    random = np.random.default_rng(7)
    graphs, inputs, exact = [], {}, {}
    for groups, depth, size in ((2, 32, 20), (4, 20, 9), (8, 32, 20)):
        new = Builder(f"groups_{groups}")
        a = narrow_rows(random, size * size, groups * depth)
        filters = random.integers(-128, 128, (groups * 40, 1, 1, depth)).astype(np.int8)
        x = new.input("x", DType.U8, (1, size, size, groups * depth), Quant.of(1.0, 0))
        w = new.weight("w", filters, Quant.of(1.0, 0))
        b = new.weight("b", np.zeros(groups * 40, np.int32), Quant.of(1.0, 0))
        ones = dict.fromkeys(("strides", "dilations"), (1, 1))
        attrs = {**ones, "pads_before": (0, 0), "pads_after": (0, 0), "group": groups}
        y = new.add("Conv", [x, w, b], attrs, outputs=[new.reserve_output("y", storage(DType.I32, 1.0))])
        graphs.append(new.finish(y))
        inputs[new.name] = {"x": a.reshape(1, size, size, -1)}
        parts = np.split(a.astype(np.int64), groups, 1)
        matrices = np.split(filters.reshape(groups * 40, depth).astype(np.int64), groups)
        exact[new.name] = np.concatenate([p @ m.T for p, m in zip(parts, matrices, strict=True)], 1)
    plans = {g.name: plan_graph(with_levels(Cpu(), (level,)), g) for g in graphs}
    library = Sanitized(plans, [level], tmp_path)
    for name, expected in exact.items():
        y = library.run(name, inputs[name])["y"]
        np.testing.assert_array_equal(y.reshape(expected.shape), expected, name)
