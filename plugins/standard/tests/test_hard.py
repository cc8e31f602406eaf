"""fuse-hard: hard sigmoid and hard swish in the orders of factors that exporters write."""

from __future__ import annotations

import pytest
from expressions import Expressions, Form, ops_after

from mace_transform_standard.fuse.fuse_hard import fuse_hard

SEEDS = range(24)


def ramp(e: Expressions, x: str, offset: float = 3.0, top: float = 6.0) -> str:
    return e("Clip", e.pick(lambda: e("Add", x, offset), lambda: e("Sub", x, -offset))(), min=0.0, max=top)


def sixth(e: Expressions, x: str, six: float = 6.0) -> str:
    return e.pick(lambda: e("Div", x, six), lambda: e("Mul", x, 1 / six))()


def swish(e: Expressions, x: str) -> str:
    return e.pick(
        lambda: sixth(e, e("Mul", x, ramp(e, x))),
        lambda: e("Mul", x, sixth(e, ramp(e, x))),
        lambda: e("Mul", sixth(e, x), ramp(e, x)),
        lambda: e("Mul", x, e("HardSigmoid", x, alpha=1 / 6, beta=0.5)),
    )()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("form", "op"), [(swish, "HardSwish"), (lambda e, x: sixth(e, ramp(e, x)), "HardSigmoid")]
)
def test_it_is_one_node(form: Form, op: str, seed: int) -> None:
    e = Expressions(seed)
    x = e("Mul", e.input(*e.shape(1, 2, 3, 4)), 4.0)
    assert ops_after([fuse_hard], e.graph(e("Neg", form(e, x)))) == ["Mul", op, "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_slope_and_height_will_do_for_a_sigmoid(seed: int) -> None:
    e = Expressions(seed)
    x = e("Sin", e.input(*e.shape(1, 2, 3)))
    line = e("Add", e.pick(lambda: e("Mul", x, 0.3), lambda: e("Div", x, 2.5), lambda: x)(), 0.4)
    assert ops_after([fuse_hard], e.graph(e("Clip", line, min=0.0, max=1.0))) == ["Sin", "HardSigmoid"]


def test_a_product_takes_slope_and_limits_in_by_itself() -> None:
    e = Expressions(0)
    x = e("MatMul", e.input(3, 4), e.constant(4, 5))
    graph = e.graph(e("Clip", e("Add", e("Mul", x, 0.3), 0.4), min=0.0, max=1.0))
    assert ops_after([fuse_hard], graph) == ["MatMul", "Mul", "Add", "Clip"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(3, 4), e.input(3, 4)
    near = e.pick(
        lambda: sixth(e, e("Mul", x, ramp(e, y))),
        lambda: sixth(e, e("Mul", x, ramp(e, x, 2.5))),
        lambda: sixth(e, e("Mul", x, ramp(e, x, 3.0, 5.0))),
        lambda: sixth(e, ramp(e, x), 5.0),
        lambda: e("Mul", x, e("HardSigmoid", x, alpha=0.2, beta=0.5)),
        lambda: e("Clip", e("Add", e("Mul", x, e.constant(4)), 0.5), min=0.0, max=1.0),
        lambda: e("Clip", e("Add", x, 0.5), min=0.0, max=2.0),
    )
    graph = e.graph(near())
    assert ops_after([fuse_hard], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ramp_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    gate = ramp(e, x)
    graph = e.graph(sixth(e, e.pick(gate, e("Mul", x, gate))), e.pick(gate, e("Neg", gate)))
    assert ops_after([fuse_hard], graph) == [n.op.name for n in graph.nodes]
