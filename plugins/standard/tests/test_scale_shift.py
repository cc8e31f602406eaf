"""fuse-scale-shift: two passes over an image as one."""

from __future__ import annotations

import pytest
from expressions import Expressions, ops_after

from mace_transform_standard.combine.fuse_scale_shift import fuse_scale_shift

SEEDS = range(24)


def constant(e: Expressions, channels: int) -> str:
    return e.constant(*e.pick((), (1,), (channels,), (1, channels)), positive=True)


def line(e: Expressions, x: str, channels: int) -> str:
    """A factor and a summand in some order."""
    scale = lambda y: e(e.pick("Mul", "Div"), y, constant(e, channels))  # noqa: E731
    shift = lambda y: e.pick(  # noqa: E731
        lambda: e("Add", y, constant(e, channels)),
        lambda: e("Sub", y, constant(e, channels)),
        lambda: e("Sub", constant(e, channels), y),
    )()
    return e.pick(lambda: shift(scale(x)), lambda: scale(shift(x)))()


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_one_node(seed: int) -> None:
    e = Expressions(seed)
    shape = (4, *e.shape(1, 2, 3, 4))
    x = e("Sin", e.input(*shape))
    assert ops_after([fuse_scale_shift], e.graph(e("Neg", line(e, x, shape[-1])))) == [
        "Sin",
        "BatchNorm",
        "Neg",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(6, 5, 4), e.input(6, 5, 4)
    near = e.pick(
        lambda: e("Add", e("Mul", x, e.constant(5, 1)), e.constant(4)),
        lambda: e("Add", e("Mul", x, y), e.constant(4)),
        lambda: e("Add", e("Div", e.constant(4), x), e.constant(4)),
        lambda: e("Div", e("Add", x, 1.0), e.array([1, 2, 0, 4])),
        lambda: e("Add", e("Add", x, e.constant(4)), e.constant(4)),
        lambda: e("Add", e("Mul", e.input(3, 4), e.constant(4)), e.constant(4)),  # too few pixels
    )
    graph = e.graph(near())
    assert ops_after([fuse_scale_shift], graph) == [n.op.name for n in graph.nodes]


def test_constants_may_have_the_rank_of_the_image() -> None:
    e = Expressions(0)
    scaled = e("Mul", e.input(6, 5, 4), e.constant(1, 1, 4))
    assert ops_after([fuse_scale_shift], e.graph(e("Add", scaled, e.constant(1, 1, 4)))) == ["BatchNorm"]


def test_a_product_that_something_else_reads_stays() -> None:
    e = Expressions(0)
    scaled = e("Mul", e.input(6, 5, 4), e.constant(4))
    for also in (scaled, e("Neg", scaled)):
        assert "BatchNorm" not in ops_after(
            [fuse_scale_shift], e.graph(e("Add", scaled, e.constant(4)), also)
        )
