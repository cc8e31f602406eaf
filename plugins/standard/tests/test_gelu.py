"""fuse-gelu in the orders of factors that exporters write, and beside them."""

from __future__ import annotations

import math

import pytest
from expressions import Expressions, Form, ops_after

from mace_transform_standard.fuse.fuse_gelu import fuse_gelu

SEEDS = range(24)


def erf_gate(e: Expressions, x: str, root: float = math.sqrt(2)) -> str:
    if e.rng.random() < 0.3:
        return e(
            "Sub",
            1.0,
            e("Erf", e.pick(lambda: e("Mul", e("Neg", x), 1 / root), lambda: e("Div", x, -root))()),
        )
    scaled = e.pick(lambda: e("Div", x, root), lambda: e("Mul", x, 1 / root))()
    return e("Add", e("Erf", scaled), 1.0)


def tanh_gate(e: Expressions, x: str, cube: float = 0.044715) -> str:
    square = e("Mul", x, x)
    cubic = e.pick(
        lambda: e("Add", x, e("Mul", e("Mul", square, x), cube)),
        lambda: e("Add", x, e("Mul", e("Mul", square, cube), x)),
        lambda: e("Mul", x, e("Add", e("Mul", square, cube), 1.0)),
    )()
    return e("Add", e("Tanh", e("Mul", cubic, math.sqrt(2 / math.pi))), 1.0)


def half_of_product(e: Expressions, x: str, gate: str, half: float = 0.5) -> str:
    return e.pick(
        lambda: e("Mul", e("Mul", x, gate), half),
        lambda: e("Div", e("Mul", x, gate), 1 / half),
        lambda: e("Mul", e("Mul", x, half), gate),
        lambda: e("Mul", x, e("Mul", gate, half)),
    )()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gate", [erf_gate, tanh_gate])
def test_it_is_one_node(gate: Form, seed: int) -> None:
    e = Expressions(seed)
    x = e("Neg", e.input(*e.shape(1, 2, 3, 4)))
    graph = e.graph(e("Abs", half_of_product(e, x, gate(e, x))))
    assert ops_after([fuse_gelu], graph) == ["Neg", "Gelu", "Abs"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(3, 4), e.input(3, 4)
    gate = e.pick(
        lambda: erf_gate(e, x, 1.5),
        lambda: tanh_gate(e, x, 0.05),
        lambda: erf_gate(e, y),
        lambda: tanh_gate(e, y),
    )()
    assert "Gelu" not in ops_after([fuse_gelu], e.graph(half_of_product(e, x, gate)))
    gate = e.pick(erf_gate, tanh_gate)(e, x)
    assert "Gelu" not in ops_after([fuse_gelu], e.graph(half_of_product(e, x, gate, 0.25)))
    for curve in ("Erf", "Tanh"):
        gate = e("Sub", 1.0, e(curve, e("Div", x, math.sqrt(2))))
        assert "Gelu" not in ops_after([fuse_gelu], e.graph(half_of_product(e, x, gate)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gate_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    gate = e.pick(erf_gate, tanh_gate)(e, x)
    result = half_of_product(e, x, gate)
    assert "Gelu" not in ops_after(
        [fuse_gelu], e.graph(result, e.pick(lambda: gate, lambda: e("Neg", gate))())
    )


def test_a_result_of_another_shape_stays() -> None:
    e = Expressions(0)
    x = e.input(3)
    wide = e("Mul", x, e.array([[0.5]]))
    assert "Gelu" not in ops_after([fuse_gelu], e.graph(e("Mul", wide, erf_gate(e, x))))


def test_a_tanh_of_another_factor_is_no_gelu() -> None:
    e = Expressions(0)
    x = e.input(3, 4)
    cubic = e("Add", x, e("Mul", e("Mul", e("Mul", x, x), x), 0.044715))
    gate = e("Add", e("Tanh", e("Mul", cubic, 0.7)), 1.0)
    graph = e.graph(half_of_product(e, x, gate))
    assert ops_after([fuse_gelu], graph) == [n.op.name for n in graph.nodes]
