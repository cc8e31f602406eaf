"""fuse-gates: Swish, Mish, and Sigmoid and Softplus written out."""

from __future__ import annotations

import numpy as np
import pytest
from expressions import Expressions, Form, ops_after

from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.fuse.fuse_gates import fuse_gates

SEEDS = range(16)
STORED = Storage(DType.I8, Quant.of(0.01))


def swish(e: Expressions, x: str) -> str:
    return e.pick(
        lambda: e("Mul", x, e("Sigmoid", x)), lambda: e("Div", x, e("Add", e("Exp", e("Neg", x)), 1.0))
    )()


def swish_with_factor(e: Expressions, x: str) -> str:
    return e("Mul", x, e("Sigmoid", e.pick(lambda: e("Mul", x, 1.702), lambda: e("Div", x, 0.6))()))


def mish(e: Expressions, x: str) -> str:
    return e("Mul", x, e("Tanh", e.pick(lambda: e("Softplus", x), lambda: softplus(e, x))()))


def sigmoid(e: Expressions, x: str) -> str:
    power = e("Exp", e.pick(lambda: e("Neg", x), lambda: e("Mul", x, -1.0))())
    return e("Reciprocal", e("Add", power, 1.0))


def softplus(e: Expressions, x: str) -> str:
    return e("Log", e("Add", e("Exp", x), 1.0))


FORMS = (
    (swish, "Swish"),
    (swish_with_factor, "Swish"),
    (mish, "Mish"),
    (sigmoid, "Sigmoid"),
    (softplus, "Softplus"),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("form", "op"), FORMS)
def test_it_is_one_node(form: Form, op: str, seed: int) -> None:
    e = Expressions(seed)
    x = e("Sin", e.input(*e.shape(1, 2, 3, 4)))
    assert ops_after([fuse_gates], e.graph(e("Neg", form(e, x)))) == ["Sin", op, "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(3, 4), e.input(3, 4)
    near = (
        e("Mul", x, e("Sigmoid", y)),
        e("Mul", x, e("Sigmoid", e("Mul", x, e.constant(4)))),
        e("Mul", x, e("Tanh", e("Softplus", y))),
        e("Reciprocal", e("Add", e("Exp", e("Neg", x)), 2.0)),
        e("Reciprocal", e("Add", e("Exp", e("Mul", x, -2.0)), 1.0)),
        e("Log", e("Add", e("Exp", x), 1.5)),
        e("Div", y, e("Add", e("Exp", e("Neg", x)), 1.0)),
    )
    graph = e.graph(*near)
    assert ops_after([fuse_gates], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gate_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    gate = e("Sigmoid", x)
    graph = e.graph(e("Mul", x, gate), e.pick(lambda: gate, lambda: e("Neg", gate))())
    assert "Swish" not in ops_after([fuse_gates], graph)


def test_a_gate_that_is_stored_as_integers_stays() -> None:
    e = Expressions(0)
    x = e.input(3, 4)
    assert ops_after([fuse_gates], e.graph(e("Mul", x, e("Sigmoid", x, storage=STORED)))) == [
        "Sigmoid",
        "Mul",
    ]


def test_a_gated_tensor_that_is_stored_as_integers_is_read_as_it_is() -> None:
    e = Expressions(0)
    x = e.input(3, 4, storage=STORED)
    assert ops_after([fuse_gates], e.graph(e("Mul", x, e("Sigmoid", x), storage=STORED))) == ["Swish"]


def test_integers_have_no_gates() -> None:
    e = Expressions(0)
    x = e.input(3, 4, dtype=DType.I32)
    square = e("Mul", x, x)
    graph = e.graph(e("Mul", square, e.new.weight("k", np.full((), 3, np.int32))))
    assert ops_after([fuse_gates], graph) == ["Mul", "Mul"]
