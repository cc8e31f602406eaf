"""fuse-bias: which additions become the bias of the op before them, and which stay."""

from __future__ import annotations

import pytest
from expressions import Expressions, ops_after

from mace_core.attributes import Attribute
from mace_transform_standard.fold.fuse_bias import fuse_bias

WINDOW = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1), "group": 1}


def conv(e: Expressions, **attrs: Attribute) -> str:
    return e("Conv", e.input(1, 4, 4, 3), e.constant(5, 2, 2, 3), **{**WINDOW, **attrs})


def product(e: Expressions, *second: int) -> str:
    return e("MatMul", e.input(6, 3), e.constant(*second))


FUSED = {
    "a summand": lambda e: e("Add", conv(e), e.constant(5)),
    "a summand of one number": lambda e: e("Add", conv(e), e.constant(1)),
    "a number without axes": lambda e: e("Sub", conv(e), e.constant()),
    "a subtrahend": lambda e: e("Sub", conv(e), e.constant(5)),
    "unit axes in front": lambda e: e("Add", conv(e), e.constant(1, 1, 1, 5)),
    "a product": lambda e: e("Add", product(e, 3, 4), e.constant(4)),
    "a summand of a constant bias": lambda e: e(
        "Add",
        e("Conv", e.input(1, 4, 4, 3), e.constant(5, 2, 2, 3), e.constant(5), **WINDOW),
        e.constant(5),
    ),
}
KEPT = {
    "a minuend": lambda e: e("Sub", e.constant(5), conv(e)),
    "a summand for each pixel": lambda e: e("Add", conv(e), e.constant(3, 3, 5)),
    "a summand behind a limit": lambda e: e("Add", conv(e, low=0.0), e.constant(5)),
    "a computed summand": lambda e: e("Add", conv(e), e.input(5)),
    "a summand of more axes": lambda e: e("Add", conv(e), e.constant(1, 1, 1, 1, 5)),
    "one channel that becomes several": lambda e: e("Add", product(e, 3, 1), e.constant(4)),
    "a product with a vector": lambda e: e("Add", product(e, 3), e.constant(1)),
    "a computed bias": lambda e: e(
        "Add", e("Conv", e.input(1, 4, 4, 3), e.constant(5, 2, 2, 3), e.input(5), **WINDOW), e.constant(5)
    ),
}


# Expressions exchange the operands of Add at random: two seeds try the constant on both sides.
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", FUSED)
def test_it_becomes_the_bias(name: str, seed: int) -> None:
    e = Expressions(seed)
    graph = e.graph(FUSED[name](e))
    assert ops_after([fuse_bias], graph) == [graph.nodes[0].op.name]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", KEPT)
def test_it_stays(name: str, seed: int) -> None:
    e = Expressions(seed)
    graph = e.graph(KEPT[name](e))
    assert ops_after([fuse_bias], graph) == [node.op.name for node in graph.nodes]


def test_a_result_with_other_readers_stays() -> None:
    e = Expressions(0)
    x = conv(e)
    graph = e.graph(e("Add", x, e.constant(5)), e("Neg", x))
    assert ops_after([fuse_bias], graph) == ["Conv", "Add", "Neg"]
