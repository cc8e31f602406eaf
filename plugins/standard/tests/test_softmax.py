"""fuse-softmax: quotients of exponentials, their logarithms, unit lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from expressions import Expressions, ops_after

from mace_transform_standard.fuse.fuse_softmax import fuse_softmax

SEEDS = range(24)
AxisForm: TypeAlias = Callable[[Expressions, str, int], str]
"""Adds one spelling of an operation on a tensor along an axis; returns the result."""


def shifted(e: Expressions, x: str, axis: int) -> str:
    return e.pick(lambda: x, lambda: e("Sub", x, e("ReduceMax", x, axes=(axis,))))()


def softmax(e: Expressions, x: str, axis: int) -> str:
    powers = e("Exp", shifted(e, x, axis))
    return e("Div", powers, e("ReduceSum", powers, axes=(axis,)))


def log_softmax(e: Expressions, x: str, axis: int) -> str:
    moved = shifted(e, x, axis)
    return e.pick(
        lambda: e("Log", softmax(e, x, axis)),
        lambda: e("Sub", moved, e("Log", e("ReduceSum", e("Exp", moved), axes=(axis,)))),
        lambda: e("Sub", moved, e("ReduceLogSumExp", moved, axes=(axis,))),
    )()


def unit(e: Expressions, x: str, axis: int) -> str:
    return e.pick(
        lambda: e("Div", x, e("ReduceL2", x, axes=(axis,))),
        lambda: e("Div", x, e("Sqrt", e("ReduceSumSquare", x, axes=(axis,)))),
        lambda: e("Div", x, e("Sqrt", e("ReduceSum", e("Mul", x, x), axes=(axis,)))),
        lambda: e("Div", x, e("ReduceL1", x, axes=(axis,))),
    )()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("form", "op"), [(softmax, "Softmax"), (log_softmax, "LogSoftmax"), (unit, "LpNorm")]
)
def test_it_is_one_node(form: AxisForm, op: str, seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(1, 2, 3, 4)
    axis = int(e.rng.integers(-len(shape), len(shape)))
    x = e("Sin", e.input(*shape))
    assert ops_after([fuse_softmax], e.graph(e("Neg", form(e, x, axis)))) == ["Sin", op, "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(3, 4, 5), e.input(3, 4, 5)
    powers = e("Exp", x)
    flat = e.input(4, 4)
    flat_powers = e("Exp", flat)
    near = e.pick(
        lambda: e("Div", flat_powers, e("ReduceSum", flat_powers, axes=(1,), keepdims=False)),
        lambda: e("Div", flat, e("ReduceL2", flat, axes=(1,), keepdims=False)),
        lambda: e("Div", e("Exp", y), e("ReduceSum", powers, axes=(1,))),
        lambda: e("Div", powers, e("ReduceSum", powers, axes=(1, 2))),
        lambda: e("Div", powers, e("ReduceMean", powers, axes=(1,))),
        lambda: e("Div", e("ReduceSum", powers, axes=(1,)), powers),
        lambda: e("Sub", y, e("Log", e("ReduceSum", powers, axes=(1,)))),
        lambda: e("Sub", x, e("Log", e("ReduceMean", powers, axes=(1,)))),
        lambda: e("Div", y, e("ReduceL2", x, axes=(1,))),
        lambda: e("Div", x, e("Clip", e("ReduceL2", x, axes=(1,)), min=1e-12)),
        lambda: e("Div", x, e("Sqrt", e("ReduceSum", e("Mul", x, y), axes=(1,)))),
    )
    graph = e.graph(near())
    assert ops_after([fuse_softmax], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sum_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    powers = e("Exp", shifted(e, x, 1))
    total = e("ReduceSum", powers, axes=(1,))
    graph = e.graph(e("Div", powers, total), e.pick(lambda: total, lambda: powers, lambda: e("Neg", total))())
    assert ops_after([fuse_softmax], graph) == [n.op.name for n in graph.nodes]


def test_another_maximum_is_part_of_what_is_normalised() -> None:
    """Softmax is the same whatever is subtracted along its axis, but only there can it be left out."""
    e = Expressions(0)
    x = e.input(3, 4)
    powers = e("Exp", e("Sub", x, e("ReduceMax", x, axes=(0,))))
    assert ops_after([fuse_softmax], e.graph(e("Div", powers, e("ReduceSum", powers, axes=(1,))))) == [
        "ReduceMax",
        "Sub",
        "Softmax",
    ]
