"""merge-pads, merge-slices, merge-concats, cancel-splits, remove-expands: fewer copies, the same bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.canonicalize.cancel_splits import cancel_splits
from mace_transform_standard.canonicalize.merge_concats import merge_concats
from mace_transform_standard.canonicalize.merge_pads import merge_pads
from mace_transform_standard.canonicalize.merge_slices import merge_slices
from mace_transform_standard.canonicalize.remove_expands import remove_expands

SEEDS = range(24)
STORED, OTHERWISE = Storage(DType.I8, Quant.of(0.02)), Storage(DType.I8, Quant.of(0.03, 4))


def pads(e: Expressions, rank: int) -> dict[str, tuple[int, ...]]:
    return {key: tuple(int(n) for n in e.rng.integers(0, 3, rank)) for key in ("before", "after")}


@pytest.mark.parametrize("seed", SEEDS)
def test_pads_of_pads_are_one(seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(1, 2, 3, 4)
    how = e.pick({"mode": "edge"}, {"value": 0.0}, {"value": 1.5})
    x = e.input(*shape, storage=e.pick(None, STORED))
    for _ in range(3):
        x = e("Pad", x, **pads(e, len(shape)), **how)
    assert ops_after([merge_pads], e.graph(x), 0) == ["Pad"]


@pytest.mark.parametrize("seed", SEEDS)
def test_pads_that_differ_stay(seed: int) -> None:
    e = Expressions(seed)
    one = {"before": (1, 1), "after": (1, 1)}
    first, second = e.pick(
        ({"value": 1.0}, {"value": 2.0}),
        ({"mode": "reflect"}, {"mode": "reflect"}),
        ({"mode": "wrap"},) * 2,
        ({"mode": "edge"}, {}),
    )
    inner = e("Pad", e.input(4, 5), **one, **first)
    assert ops_after([merge_pads], e.graph(e("Pad", inner, **one, **second)), 0) == ["Pad", "Pad"]
    e = Expressions(seed)
    inner = e("Pad", e.input(4, 5), **one)
    assert ops_after([merge_pads], e.graph(e("Pad", inner, **one), inner), 0) == ["Pad", "Pad"]
    e = Expressions(seed)
    inner = e("Pad", e.input(4, 5, storage=STORED), **one, value=0.3)
    assert ops_after([merge_pads], e.graph(e("Pad", inner, **one, value=0.3, storage=OTHERWISE)), 0) == [
        "Pad",
        "Pad",
    ]


def part(e: Expressions, x: str) -> str:
    """Some of every axis, forwards or backwards."""
    starts, sizes, steps = [], [], []
    for dim in e.new.shape(x):
        picked = range(dim)[
            e.pick(
                slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(dim, 0, -1)
            )
        ]
        starts.append(picked.start if len(picked) else 0)
        sizes.append(len(picked))
        steps.append(picked.step)
    return e("Slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_of_parts_are_parts(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(*(int(n) for n in e.rng.integers(6, 12, e.pick(1, 2, 3))), storage=e.pick(None, STORED))
    assert ops_after([merge_slices], e.graph(part(e, part(e, part(e, x)))), 0) == ["Slice"]


def test_a_part_that_others_read_is_left_to_them() -> None:
    e = Expressions(1)
    inner = part(e, e.input(9, 8))
    graph = e.graph(part(e, inner), part(e, inner))
    assert ops_after([merge_slices], graph, 0) == ["Slice", "Slice"]
    assert ops_after([merge_slices], e.graph(part(e, inner), e("Neg", inner)), 0) == ["Slice", "Slice", "Neg"]


def test_a_part_that_is_rounded_stays() -> None:
    e = Expressions(0)
    inner = e("Slice", e.input(9, storage=STORED), starts=(1,), sizes=(8,), steps=(1,), storage=OTHERWISE)
    assert ops_after([merge_slices], e.graph(e("Slice", inner, starts=(1,), sizes=(7,), steps=(1,))), 0) == [
        "Slice",
        "Slice",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_concats_of_concats_are_one(seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(1, 2, 3)
    axis = int(e.rng.integers(len(shape)))
    storage = e.pick(None, STORED)

    def tree(depth: int) -> str:
        parts = [
            tree(depth - 1) if depth and e.rng.random() < 0.5 else e.input(*shape, storage=storage)
            for _ in range(3)
        ]
        return e("Concat", *parts, axis=e.pick(axis, axis - len(shape)))

    assert ops_after([merge_concats], e.graph(tree(3)), 0) == ["Concat"]


def test_concats_that_differ_stay() -> None:
    e = Expressions(0)
    x, y = e.input(2, 4), e.input(2, 4)
    inner = e("Concat", x, y, axis=0)
    for outer in (
        e.graph(e("Concat", inner, inner, axis=1)),
        e.graph(e("Concat", inner, y, axis=0), inner),
        e.graph(e("Concat", inner, inner, axis=0)),
    ):
        assert ops_after([merge_concats], outer, 0) == ["Concat", "Concat"]
    e = Expressions(0)
    x, y = e.input(2, 4, storage=STORED), e.input(2, 4, storage=OTHERWISE)
    inner = e("Concat", x, y, axis=0, storage=STORED)
    assert ops_after([merge_concats], e.graph(e("Concat", inner, x, axis=0, storage=STORED)), 0) == [
        "Concat",
        "Concat",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_that_are_joined_again_are_the_whole(seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(1, 2, 3)
    axis = int(e.rng.integers(len(shape)))
    sizes = tuple(int(n) for n in e.rng.multinomial(shape[axis], [0.3, 0.3, 0.4]))
    x = e("Neg", e.input(*shape))
    pieces = e.new.add("Split", [x], {"axis": axis, "sizes": sizes}, outputs=3)
    whole = e("Abs", e("Concat", *pieces, axis=axis - len(shape)))
    assert ops_after([cancel_splits], e.graph(whole), 0) == ["Neg", "Abs"]
    near = e.pick(pieces[::-1], pieces[:2], (*pieces, pieces[0]))
    assert ops_after([cancel_splits], e.graph(e("Concat", *near, axis=axis)), 0) == ["Neg", "Split", "Concat"]


def test_pieces_that_are_rounded_are_joined_as_they_are() -> None:
    for inner, outer, kept in ((STORED, STORED, False), (OTHERWISE, STORED, True), (STORED, OTHERWISE, True)):
        e = Expressions(0)
        pieces = [e.new.reserve_output(f"piece{i}", inner) for i in range(2)]
        e.new.add("Split", [e.input(4, storage=STORED)], {"axis": 0, "sizes": (1, 3)}, outputs=pieces)
        graph = e.graph(e("Concat", *pieces, axis=0, storage=outer))
        assert ("Split" in ops_after([cancel_splits], graph, 0)) == kept
    e = Expressions(0)
    whole = e("Concat", e.input(2, storage=STORED), e.input(2, storage=OTHERWISE), axis=0, storage=STORED)
    halves = [e.new.reserve_output(f"half{i}", STORED) for i in range(2)]
    e.new.add("Split", [whole], {"axis": 0, "sizes": (2, 2)}, outputs=halves)
    assert ops_after([cancel_splits], e.graph(*halves), 0) == ["Concat", "Split"]


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_that_are_split_again_are_themselves(seed: int) -> None:
    e = Expressions(seed)
    sizes = [int(n) for n in e.rng.integers(1, 5, 5)]
    parts = [e("Neg", e.input(3, n)) for n in sizes]
    whole = e("Concat", *parts, axis=1)
    groups = e.pick([1, 1, 1, 1, 1], [2, 1, 2], [1, 4], [3, 2])
    ends = np.cumsum([0, *groups])
    attrs = {"axis": e.pick(1, -1), "sizes": tuple(sum(sizes[a:b]) for a, b in pairwise(ends))}
    pieces = [e("Abs", p) for p in e.new.add("Split", [whole], attrs, outputs=len(groups))]
    concats = ["Concat"] * sum(n > 1 for n in groups)
    assert sorted(ops_after([cancel_splits], e.graph(*pieces), 0)) == sorted(
        [*["Neg"] * 5, *["Abs"] * len(groups), *concats]
    )
    kept = ops_after([cancel_splits], e.graph(*pieces, whole), 0)
    assert ("Split" in kept) == bool(concats)


def test_pieces_across_parts_stay() -> None:
    e = Expressions(0)
    whole = e("Concat", e.input(3, 2), e.input(3, 2), axis=1)
    pieces = e.new.add("Split", [whole], {"axis": 1, "sizes": (1, 3)}, outputs=2)
    assert ops_after([cancel_splits], e.graph(*pieces), 0) == ["Concat", "Split"]
    pieces = e.new.add("Split", [whole], {"axis": 0, "sizes": (2, 1)}, outputs=2)
    assert ops_after([cancel_splits], e.graph(*pieces), 0) == ["Concat", "Split"]


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_stretch_by_themselves(seed: int) -> None:
    e = Expressions(seed)
    shape = (3, *e.shape(1, 2, 3))
    narrow = tuple(1 if e.rng.random() < 0.5 else d for d in shape)
    x, y = e.input(*shape), e("Neg", e.input(*narrow))
    repeats = tuple(d // n for d, n in zip(shape, narrow, strict=True))
    wide = e.pick(lambda: e("Expand", y, shape=shape), lambda: e("Tile", y, repeats=repeats))()
    result = e.pick(
        lambda: e(e.pick("Add", "Mul", "Sub", "PRelu"), x, wide),
        lambda: e("Where", e("Less", x, wide), x, wide),
    )()
    assert not {"Expand", "Tile"} & set(ops_after([remove_expands], e.graph(result), 0))


def test_a_stretch_that_shapes_the_result_stays() -> None:
    e = Expressions(0)
    x = e.input(1, 4)
    for graph in (
        e.graph(e("Add", e("Expand", x, shape=(3, 4)), e("Neg", x))),
        e.graph(e("Neg", e("Expand", x, shape=(3, 4)))),
        e.graph(e("Add", e("Tile", x, repeats=(1, 2)), e.input(3, 8))),
    ):
        assert ops_after([remove_expands], graph, 0) == [n.op.name for n in graph.nodes]
    both = e.graph(e("Add", e("Expand", x, shape=(3, 4)), e("Expand", e.input(3, 1), shape=(3, 4))))
    assert ops_after([remove_expands], both, 0) == ["Add"]


def test_a_merged_concat_stands_for_all_that_it_was() -> None:
    e = Expressions()
    left, right = (e("Concat", e.input(2), e.input(2), axis=0) for _ in range(2))
    graph = e.graph(e("Concat", left, right, axis=0))
    (merged,) = merge_concats(graph).nodes
    assert set(merged.sources) == {source for node in graph.nodes for source in node.sources}
