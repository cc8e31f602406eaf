"""Plans for windows, beside the definition: sums over a line of random numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mace_core.ir import Array
from mace_target_max78000.legalize.window_plans import (
    CopyPlan,
    DirectPlan,
    FoldPlan,
    WindowAxis,
    plan_copies,
    plan_direct,
    plan_fold,
)

RANDOM = np.random.default_rng(0)


def compute_window(x: Array, axis: WindowAxis, weights: Array) -> Array:
    """Each result by its definition."""

    def at(i: int) -> int:
        return int(x[i]) if 0 <= i < len(x) else 0

    return np.asarray(
        [
            sum(int(w) * at(axis.stride * t + e) for w, e in zip(weights, axis.offsets, strict=True))
            for t in range(axis.count)
        ]
    )


def by_direct(x: Array, axis: WindowAxis, weights: Array, plan: DirectPlan) -> Array:
    kernel = np.zeros(plan.length, np.int64)
    kernel[list(plan.places)] = weights
    return np.correlate(np.pad(x, plan.pad), kernel, "valid")[:: axis.stride]


def by_copies(x: Array, axis: WindowAxis, weights: Array, plan: CopyPlan) -> Array:
    results = [x]
    for stage in plan.stages:
        padded = [np.pad(row, stage.pad) for row in results]
        size = len(padded[0]) - plan.copying + 1
        results = [padded[source][place : place + size] for source, place in stage.sources]
    rows = [np.pad(row[:: axis.stride], plan.pad) for row in results]
    kernel = np.zeros((len(rows), plan.length), np.int64)
    for weight, (copy, place) in zip(weights, plan.places, strict=True):
        kernel[copy, place] += weight
    return np.sum([np.correlate(row, k, "valid") for row, k in zip(rows, kernel, strict=True)], axis=0)


def by_fold(x: Array, axis: WindowAxis, weights: Array, plan: FoldPlan) -> Array:
    u = axis.stride * np.arange(plan.size)
    rows = [np.pad([int(x[i]) if 0 <= i < len(x) else 0 for i in u + move], plan.pad) for move in plan.moves]
    kernel = np.zeros((len(rows), plan.length), np.int64)
    for weight, (copy, place) in zip(weights, plan.places, strict=True):
        kernel[copy, place] += weight
    return np.sum([np.correlate(row, k, "valid") for row, k in zip(rows, kernel, strict=True)], axis=0)


CASES = [
    WindowAxis(n, (n + before + after - (k - 1) * d - 1) // s + 1, s, tuple(d * i - before for i in range(k)))
    for n, k, s, d in itertools.product((11, 12), (1, 2, 3, 4, 5, 7), (1, 2, 3), (1, 2))
    for before, after in ((0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (3, 3))
    if max(before, after) <= (k - 1) * d < n
]


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("axis", CASES, ids=str)
def test_plans_are_exact(axis: WindowAxis) -> None:
    x, weights = RANDOM.integers(-128, 128, axis.size), RANDOM.integers(-128, 128, len(axis.offsets))
    expected = compute_window(x, axis, weights)
    (plan,) = plan_fold((axis,), 3)
    assert np.array_equal(by_fold(x, axis, weights, plan), expected)
    for length in (1, 3):
        for alone in plan_direct(axis, length):
            assert np.array_equal(by_direct(x, axis, weights, alone)[alone.lead :][: axis.count], expected)
    for lengths, depth in (((3,), 1), ((3,), 2), (tuple(range(1, 10)), 1)):
        for copies in plan_copies(axis, lengths, depth):
            assert np.array_equal(by_copies(x, axis, weights, copies), expected)


def test_every_even_window_has_a_plan() -> None:
    """Those that keep the size, or take every second element of an even number, up to a kernel of 7."""
    kept = [WindowAxis(12, 12, 1, tuple(range(-(k // 2), k - k // 2))) for k in (1, 3, 5, 7)]
    halved = [
        WindowAxis(
            12, 6, 2, tuple(range(-((k - 2) // 2 if k > 1 else 0), k - ((k - 2) // 2 if k > 1 else 0)))
        )
        for k in (1, 2, 3, 5)
    ]
    for axis in (*kept, *halved):
        plans = [
            *plan_direct(axis, 1),
            *plan_direct(axis, 3),
            *(p for depth in (1, 2) for p in plan_copies(axis, (3,), depth)),
        ]
        assert plans, axis
