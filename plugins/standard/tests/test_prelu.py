"""fuse-prelu: sums of halves and maxima."""

from __future__ import annotations

import math

import pytest
from expressions import Expressions, ops_after

from mace_transform_standard.fuse.fuse_prelu import fuse_prelu

SEEDS = range(24)


def upper(e: Expressions, x: str) -> str:
    return e.pick(lambda: e("Relu", x), lambda: e("Clip", x, min=0.0))()


def lower(e: Expressions, x: str, slope: str | float) -> str:
    """A slope times min(x, 0)."""
    return e.pick(
        lambda: e("Mul", e("Clip", x, max=0.0), slope),
        lambda: e("Mul", e("Neg", e("Relu", e("Neg", x))), slope),
        lambda: e("Neg", e("Mul", e("Relu", e("Neg", x)), slope)),
        lambda: e("Mul", e("Mul", e("Sub", x, e("Abs", x)), slope), 0.5),
    )()


def total(e: Expressions, x: str, slope: str | float) -> str:
    whole = e.pick(
        lambda: e("Add", upper(e, x), lower(e, x, slope)),
        lambda: e("Sub", upper(e, x), e("Mul", e("Relu", e("Neg", x)), slope)),
    )
    return whole()


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_one_node(seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(2, 3, 4)
    x = e("Sin", e.input(*shape))
    slope, op = e.pick(
        (0.3, "LeakyRelu"), (e.constant(shape[-1]), "PRelu"), (e.constant(1, shape[-1]), "PRelu")
    )
    assert ops_after([fuse_prelu], e.graph(e("Neg", total(e, x, slope)))) == ["Sin", op, "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_maximum_is_one_for_slopes_of_0_to_1(seed: int) -> None:
    e = Expressions(seed)
    x = e("Sin", e.input(3, 4))
    slope, op = e.pick((0.3, "LeakyRelu"), (e.array([0, 0.5, 1, 0.25]), "PRelu"))
    assert ops_after([fuse_prelu], e.graph(e("Maximum", x, e("Mul", x, slope)))) == ["Sin", op]
    e = Expressions(seed)
    x = e.input(3, 4)
    steep = e.pick(1.5, -0.5, e.array([0, 0.5, 1, 1.25]))
    assert ops_after([fuse_prelu], e.graph(e("Maximum", x, e("Mul", x, steep)))) == ["Mul", "Maximum"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(3, 4), e.input(3, 4)
    near = e.pick(
        lambda: e("Add", e("Relu", x), lower(e, y, 0.3)),
        lambda: e("Add", e("Clip", x, min=0.1), lower(e, x, 0.3)),
        lambda: e("Add", e("Relu", x), e("Mul", e("Clip", x, max=0.5), 0.3)),
        lambda: e("Add", e("Relu", x), e("Mul", e("Clip", x, min=-math.inf, max=0.0), y)),
        lambda: e("Add", e("Relu", x), e("Relu", e("Mul", x, -2.0))),
        lambda: e("Add", e("Relu", x), e("Mul", e("Sub", x, e("Abs", y)), 0.3)),
        lambda: e("Add", e("Relu", x), e("Mul", e("Sub", x, e("Exp", x)), 0.3)),
        lambda: e("Sub", lower(e, x, 0.3), e("Relu", x)),
        lambda: e("Maximum", x, e("Mul", y, 0.3)),
    )
    graph = e.graph(near())
    assert ops_after([fuse_prelu], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_half_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    halves = upper(e, x), lower(e, x, 0.3)
    graph = e.graph(e("Add", *halves), e.pick(halves[0], e("Exp", halves[1])))
    assert ops_after([fuse_prelu], graph) == [n.op.name for n in graph.nodes]
