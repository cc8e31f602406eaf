"""sink-reshapes: what follows a Reshape of a convolution's or product's result."""

from __future__ import annotations

import pytest
from expressions import Expressions, ops_after

from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.canonicalize.remove_identity import remove_identity
from mace_transform_standard.fuse.sink_reshapes import sink_reshapes

SEEDS = range(24)
STORED = Storage(DType.I8, Quant.of(0.05))
ROW = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}


def add_product(e: Expressions, storage: Storage | None = None) -> str:
    """A sequence's convolution as an image's, or a product of all rows of a batch."""
    return e.pick(
        lambda: e(
            "Reshape",
            e("Conv", e.input(1, 1, 6, 3), e.constant(4, 1, 2, 3), **ROW, storage=storage),
            shape=(1, 5, 4),
        ),
        lambda: e("Reshape", e("MatMul", e.input(6, 3), e.constant(3, 4), storage=storage), shape=(2, 3, 4)),
    )()


def line(e: Expressions, y: str) -> tuple[str, str]:
    """An op that belongs before the Reshape."""
    op = e.pick("Add", "Sub", "Mul", "Div", "Relu", "Clip")
    if op == "Relu":
        return e("Relu", y), op
    if op == "Clip":
        return e("Clip", y, min=-1.0, max=1.0), op
    constant = e.constant(*e.pick((), (4,), (1, 4), (1, 1, 4)), positive=True)
    return e(op, *e.pick((y, constant), (constant, y))), op


@pytest.mark.parametrize("seed", SEEDS)
def test_it_comes_first(seed: int) -> None:
    e = Expressions(seed)
    y, ops = add_product(e), []
    for _ in range(3):
        y, op = line(e, y)
        ops.append(op)
    filtered = e.graph(y).nodes[0].op.name
    assert ops_after([sink_reshapes, remove_identity], e.graph(e("Neg", y))) == [
        filtered,
        *ops,
        "Reshape",
        "Neg",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_would_not_be_taken_in_stays(seed: int) -> None:
    e = Expressions(seed)
    y = add_product(e)
    graph = e.pick(
        lambda: e.graph(e("Tanh", y)),
        lambda: e.graph(e("Add", y, e.constant(e.new.shape(y)[1], 1))),
        lambda: e.graph(e("Add", y, e.constant(1, 1, 1, 4))),
        lambda: e.graph(e("Add", y, e.input(4))),
        lambda: e.graph(e("Relu", y), y),
        lambda: e.graph(e("Relu", e("Reshape", e("Sin", e.input(2, 6)), shape=(3, 4)))),
        lambda: e.graph(
            e("Add", e("Reshape", e("MatMul", e.input(6, 3), e.constant(3, 4)), shape=(4, 6)), e.constant(6))
        ),
    )()
    assert ops_after([sink_reshapes], graph) == [n.op.name for n in graph.nodes]


def test_stored_integers_are_rounded_as_often_as_before() -> None:
    e = Expressions(0)
    y = e("Relu", add_product(e, storage=STORED), storage=STORED)
    result = ops_after([sink_reshapes], e.graph(y))
    assert sorted(result) == sorted([e.graph(y).nodes[0].op.name, "Relu", "Reshape"])
