"""Products of bytes in an order in which 16 bits hold the sum of two: found, proven, and computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, U8, check, conv, product, storage

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86, Packing
from mace_target_cpu.lower import ordered, orders
from mace_target_cpu.lower.igemm import pack_bytes
from mace_target_cpu.lower.order_check import check_orders
from mace_target_cpu.lower.orders import EMPTY, Orders, Runs, find_orders

POINT = {"pads_before": (0, 0), "pads_after": (0, 0)}
HERE = [level for level in levels_here(X86) if level.dot == "quads"]


def pack(matrix: Array) -> Array:
    """Pack weights [depth, columns]."""
    return pack_bytes(matrix[None], Packing())


def prove(packed: Array, runs: Runs, found: Orders) -> tuple[int, int]:
    return check_orders(packed, runs, found.starts, found.pack())


def random_weights(depth: int, columns: int, spread: float) -> Array:
    rng = np.random.default_rng(depth + columns)
    return np.clip(np.rint(rng.normal(0, spread, (depth, columns))), -128, 127).astype(np.int8)


def fill(value: int, depth: int = 32, columns: int = 16) -> Array:
    return np.full((depth, columns), value, np.int8)


def alternate(depth: int, columns: int) -> Array:
    """Return the ends of a byte in turn, along both axes."""
    places = np.add.outer(np.arange(depth), np.arange(columns))
    return np.where(places % 2, 127, -128).astype(np.int8)


@pytest.mark.parametrize(
    ("matrix", "runs"),
    [
        (random_weights(64, 40, 20), Runs(1, 16)),
        (random_weights(64, 16, 60), Runs(1, 16)),
        (random_weights(36, 16, 40), Runs(3, 3)),
        (random_weights(4 * 5 * 9, 33, 40), Runs(9, 5)),
        (alternate(40, 16), Runs(1, 10)),
        (fill(127), Runs(2, 4)),
        (fill(-128), Runs(1, 8)),
        (fill(0), Runs(1, 8)),
        (fill(64, 4), Runs(1, 1)),
        (np.zeros((0, 16), np.int8), Runs(1, 0)),
    ],
)
def test_orders_are_proven(matrix: Array, runs: Runs) -> None:
    packed = pack(matrix)
    smallest, largest = prove(packed, runs, find_orders(packed, runs))
    assert smallest >= -(1 << 15)
    assert largest < 1 << 15
    assert 255 * int(matrix.max(initial=0)) <= largest


@pytest.mark.parametrize(
    ("matrix", "products"),
    [
        (fill(64), 8),  # 64 + 64 is the most that two may sum to
        (fill(65), 16),
        (fill(-64), 8),
        (fill(-65), 16),
        (fill(127), 16),
        (alternate(32, 16), 8),  # weights of two signs do not add up
        (
            np.where(np.arange(32)[:, None] < 16, fill(127), fill(1)),
            12,
        ),  # 8 and 4: windows stay by themselves
        (np.where(np.arange(32)[:, None] % 2, fill(127), fill(1)), 8),
        (np.where(np.arange(32)[:, None] % 2, fill(127), fill(2)), 12),  # those of 2 meet each other
        (fill(0), 0),
    ],
)
def test_large_weights_meet_small_ones(matrix: Array, products: int) -> None:
    result = find_orders(pack(matrix), Runs(1, 8))
    assert result.max_slots + result.natural_count == products


def test_neighbors_that_would_saturate_are_parted() -> None:
    # Each pair of neighbors is beyond the bound, and a large weight has a small one elsewhere in its window.
    matrix = np.tile(np.array([100, 100, 20, 20], np.int8)[:, None], (4, 16))
    result = find_orders(pack(matrix), Runs(1, 4))
    assert result.max_slots == 4
    assert not result.natural_count
    assert not (result.places == EMPTY).any()
    sums = matrix[:, 0].astype(int)[result.places].reshape(-1, 2).sum(1)
    assert (sums == 120).all()


@pytest.mark.parametrize(
    ("matrix", "natural", "slots"),
    [
        (fill(64), 8, 0),
        (alternate(32, 16), 8, 0),
        (fill(0), 0, 0),  # nothing to multiply
        # The third quad of the first window exceeds the bound in one column only, the others none.
        (np.where(np.arange(32)[:, None] == 9, np.eye(16, dtype=np.int8)[3] * 28, 0) + fill(50), 8, 0),
        (np.where(np.arange(32)[:, None] == 9, np.eye(16, dtype=np.int8)[3] * 29, 0) + fill(50), 7, 2),
        # 70 has no partner among the 60 of its quad, but one of 50 elsewhere: the whole window is paired.
        (
            np.where(np.arange(32)[:, None] == 8, 70, np.where(np.arange(32)[:, None] // 4 == 2, 60, 50))
            + fill(0),
            4,
            4,
        ),
    ],
)
def test_exact_quads_stay_as_they_lie(matrix: Array, natural: int, slots: int) -> None:
    result = find_orders(pack(matrix.astype(np.int8)), Runs(1, 8))
    assert (result.natural_count, result.max_slots) == (natural, slots)


def swap(found: Orders) -> Orders:
    places = found.places.copy()
    places[0, 1], places[0, 2] = places[0, 2], places[0, 1]
    return replace(found, places=places)


def repeat(found: Orders) -> Orders:
    places = found.places.copy()
    places[1] = places[0]
    return replace(found, places=places)


def forget(found: Orders) -> Orders:
    places = found.places.copy()
    places[0, 0] = EMPTY
    return replace(found, places=places)


def leave_window(found: Orders) -> Orders:
    places = found.places.copy()
    places[0, 0] += 16
    return replace(found, places=places)


def leave_piece(found: Orders) -> Orders:
    # The second panel's last window has eight elements.
    places = found.places.copy()
    places[-1, 0] = 15
    return replace(found, places=places)


def shift(found: Orders) -> Orders:
    counts = found.counts.copy()
    counts[0, 0] -= 1
    counts[0, 1] += 1
    return replace(found, counts=counts)


def shorten(found: Orders) -> Orders:
    return replace(found, places=found.places[:-4])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (swap, "leave 16 bits"),
        (repeat, "not multiplied once"),
        (forget, "not multiplied once"),
        (leave_window, "names no element"),
        (leave_piece, "behind its piece"),
        (shift, "behind its piece"),
        (shorten, "behind the end"),
    ],
)
def test_a_wrong_order_is_not_proven(damage: Callable[[Orders], Orders], problem: str) -> None:
    # Large weights are neighbors in each quad, so that none is natural; 24 elements are two windows.
    column = np.array([100, 100, 20, 20] * 6, np.int8)
    packed, runs = pack(np.tile(column[:, None], (1, 32))), Runs(1, 6)
    result = find_orders(packed, runs)
    prove(packed, runs, result)
    with pytest.raises(MaceError, match=problem):
        prove(packed, runs, damage(result))


def set_quad(found: Orders) -> Orders:
    return replace(found, natural_quads=found.natural_quads | np.array([[0], [1]], np.uint8))


def forget_quad(found: Orders) -> Orders:
    return replace(found, natural_quads=found.natural_quads & np.array([[14], [15]], np.uint8))


def leave_piece_by_quad(found: Orders) -> Orders:
    return replace(found, natural_quads=found.natural_quads | np.array([[0, 4], [0, 0]], np.uint8))


def take_all(found: Orders) -> Orders:
    counts = np.zeros_like(found.counts)
    return Orders(np.array([[15, 3], [15, 3]], np.uint8), counts, found.places[:0])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (set_quad, "not multiplied once"),
        (forget_quad, "not multiplied once"),
        (leave_piece_by_quad, "behind its piece"),
        (take_all, "panel 1: a sum of two products can leave 16 bits"),
    ],
)
def test_a_wrong_natural_quad_is_not_proven(damage: Callable[[Orders], Orders], problem: str) -> None:
    # The first panel's quads are natural, the second one's are not; 24 elements are two windows.
    column = np.array([100, 100, 20, 20] * 6, np.int8)
    packed, runs = pack(np.tile(column[:, None], (1, 32))), Runs(1, 6)
    packed[:, 0] = 64
    result = find_orders(packed, runs)
    prove(packed, runs, result)
    assert result.natural_quads.tolist() == [[15, 3], [0, 0]]
    with pytest.raises(MaceError, match=problem):
        prove(packed, runs, damage(result))


def test_a_weaker_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.tile(np.array([65, 64], np.int8)[:, None], (8, 16))
    x = graph_of(matrix)
    monkeypatch.setattr(ordered, "SLOT_COST", 0.0)
    assert "conv_quantized_ordered" in {call.kernel.name for call in Cpu().lower(x, "x86_64").calls}
    ordered._prove_orders.cache_clear()
    monkeypatch.setattr(orders, "LIMIT", 129)
    with pytest.raises(MaceError, match="leave 16 bits"):
        Cpu().lower(x, "x86_64")
    ordered._prove_orders.cache_clear()


def graph_of(matrix: Array, rows: int = 21) -> Graph:
    """Return a product of rows of int8 with a matrix [depth, columns]."""
    new = Builder("adverse")
    depth, columns = matrix.shape
    x = new.input("x", DType.I8, (rows, depth), Quant.of(1.0, -128))
    w = new.weight("w", matrix, Quant.of(1.0, 0))
    b = new.weight("b", np.zeros(columns, np.int32), Quant.of(1.0, 0))
    # The sums themselves, so that a single unit that is lost shows.
    return new.finish(
        new.add("MatMul", [x, w, b], outputs=[new.reserve_output("y", storage(DType.I32, 1.0))])
    )


def test_the_cheaper_way_is_taken() -> None:
    ordinary, adverse = graph_of(random_weights(64, 32, 30)), graph_of(fill(127, 64))
    at_avx2 = [
        next(call for call in Cpu().lower(g, "x86_64").calls if call.is_made_at("avx2"))
        for g in (ordinary, adverse)
    ]
    assert [call.kernel.name for call in at_avx2] == ["conv_quantized_ordered", "conv_quantized"]
    assert at_avx2[0].proof.startswith("sums of two products ")
    assert not at_avx2[1].proof


@pytest.mark.parametrize(
    ("spread", "kernels"),
    [
        (15, {"conv_quantized", "conv_quantized_ordered"}),
        (35, {"conv_quantized", "conv_quantized_ordered"}),
        (60, {"conv_quantized"}),
    ],
)
def test_a_single_row_is_ordered_where_many_quads_are_natural(spread: int, kernels: set[str]) -> None:
    calls = Cpu().lower(graph_of(random_weights(64, 32, spread), rows=1), "x86_64").calls
    assert {call.kernel.name for call in calls} == kernels


ADVERSE = {
    "largest": fill(127, 32, 24),
    "smallest": fill(-128, 32, 24),
    "alternating": alternate(48, 16),
    "bound": fill(64, 64, 8),
    "negative_bound": fill(-64, 64, 16),
    "beyond": fill(65, 64, 17),
    "mixed": random_weights(77, 50, 60),
    "zero": fill(0),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_adverse_weights_and_activations_are_exact(
    level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "SLOT_COST", 0.0)
    graphs = [graph_of(matrix).with_name(name) for name, matrix in ADVERSE.items()]
    rng = np.random.default_rng(3)
    inputs = {}
    for g in graphs:
        x = rng.integers(-128, 128, g.tensors["x"].shape).astype(np.int8)
        # 255 and 0 as unsigned bytes, all of them, in turn, and where the weights are positive or negative.
        x[0], x[1], x[2, ::2], x[3, 1::2] = 127, -128, 127, 127
        x[4], x[5] = (np.where(sign * ADVERSE[g.name][:, 0] > 0, 127, -128) for sign in (1, -1))
        inputs[g.name] = {"x": x}
    results = run_merged(Cpu(), graphs, tmp_path, inputs, [level])
    for g in graphs:
        (name,) = g.outputs
        exact = (inputs[g.name]["x"].astype(np.int64) + 128) @ ADVERSE[g.name].astype(np.int64)
        np.testing.assert_array_equal(results[g.name][name], exact, g.name)
        np.testing.assert_array_equal(execute(g, inputs[g.name])[name], exact)


SINGLE = {
    "natural": fill(64, 64, 24),
    "pairs": fill(127, 64, 16),
    "both": random_weights(78, 50, 24),
    "one_quad": fill(-64, 3, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_single_rows_are_exact(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "SINGLE_COST", 0.0)
    monkeypatch.setattr(ordered, "MIXED_COST", 0.0)
    graphs = [graph_of(matrix, rows=1).with_name(name) for name, matrix in SINGLE.items()]
    inputs = {g.name: {"x": np.full(g.tensors["x"].shape, 127, np.int8)} for g in graphs}
    inputs["both"]["x"] = np.where(SINGLE["both"][:, 7] > 0, 127, -128).astype(np.int8)[None]
    results = run_merged(Cpu(), graphs, tmp_path, inputs, [level])
    for g in graphs:
        (name,) = g.outputs
        exact = (inputs[g.name]["x"].astype(np.int64) + 128) @ SINGLE[g.name].astype(np.int64)
        np.testing.assert_array_equal(results[g.name][name], exact, g.name)


@pytest.mark.slow
@pytest.mark.parametrize("level", HERE, ids=lambda level: str(level.name))
def test_convolutions_in_order(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "SLOT_COST", 0.0)
    graphs = [
        conv("square", (1, 9, 7, 5), (19, 3, 3, 5), (I8, DType.I8, I8)),
        conv("pixel", (2, 5, 6, 12), (33, 1, 1, 12), (I8, DType.I8, I8), **POINT),
        conv("in_place", (2, 5, 6, 48), (33, 1, 1, 48), (U8, DType.I8, U8), **POINT),
        conv("uneven", (2, 5, 6, 40), (8, 1, 1, 40), (U8, DType.I8, U8), **POINT),
        conv("blocks", (1, 48, 40, 40), (8, 1, 1, 40), (U8, DType.I8, U8), **POINT),
        conv("legacy", (1, 9, 8, 6), (17, 3, 3, 6), (U8, DType.U8, storage(DType.U8, 0.3, 100))),
        conv("strided", (1, 12, 12, 3), (8, 5, 5, 3), (U8, DType.I8, I8), strides=(2, 2)),
        conv("groups", (1, 8, 8, 8), (12, 3, 3, 4), (I8, DType.I8, U8), group=2),
        conv("wide_groups", (1, 8, 8, 64), (40, 1, 1, 32), (U8, DType.I8, U8), group=2, **POINT),
        conv("floats", (1, 8, 8, 4), (8, 3, 3, 4), (I8, DType.I8, None)),
        conv("deep", (1, 12, 12, 64), (40, 3, 3, 64), (I8, DType.I8, I8)),
        conv("dilated", (1, 12, 12, 20), (40, 3, 3, 20), (I8, DType.I8, I8), dilations=(2, 2)),
        product(DType.U8),
    ]
    kernels = check(graphs, tmp_path, [level])
    assert set(kernels.values()) == {"conv_quantized_ordered"}
