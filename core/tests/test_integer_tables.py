"""Functions of stored integers as tables and curves."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.integer_tables import KNOT_BITS, compute_table, find_operand, fit_curve
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.lowering import Lowering, Refused

EIGHT = Storage(DType.I8, Quant.of(0.05, -3))
SIXTEEN = Storage(DType.I16, Quant.of(2.0**-12))


def unary(op: str, x: Storage, y: Storage, **attrs: float) -> Graph:
    builder = Builder("g")
    operand = builder.input("x", x.dtype, (2, 3), x.quant)
    return builder.finish([builder.one(op, [operand], attrs, outputs=[builder.reserve_output("y", y)])])


def test_a_table_has_the_result_of_each_value_in_the_order_of_bits() -> None:
    graph = unary("Clip", EIGHT, EIGHT, min=0.0)
    lowering = Lowering(graph)
    table = compute_table(graph.nodes[0], lowering, find_operand(graph.nodes[0], lowering))
    values = np.arange(256, dtype=np.uint8).view(np.int8)
    np.testing.assert_array_equal(table, np.maximum(values, -3))


@pytest.mark.parametrize(("op", "function"), [("Tanh", np.tanh), ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)))])
def test_a_curve_is_less_than_a_step_from_the_function(op: str, function: np.ufunc) -> None:
    result = Storage(DType.I16, Quant.of(2.0**-15))
    graph = unary(op, SIXTEEN, result)
    lowering = Lowering(graph)
    curve = fit_curve(graph.nodes[0], lowering, find_operand(graph.nodes[0], lowering))
    assert len(curve.knots) == (1 << (16 - curve.shift)) + 1
    values = np.arange(-(1 << 15), 1 << 15) * 2.0**-12
    steps = np.clip(function(values) * 2.0**15, -(1 << 15), (1 << 15) - 1)
    assert np.abs(curve.interpolate() - steps).max() < 1
    assert curve.knots[0] == round(function(-8.0) * 2.0**15 * (1 << KNOT_BITS))


def test_a_function_that_jumps_has_no_curve() -> None:
    graph = unary("Sign", SIXTEEN, Storage(DType.I16, Quant.of(2.0**-15)))
    lowering = Lowering(graph)
    with pytest.raises(Refused, match="Sign bends too sharply between 4097 knots"):
        fit_curve(graph.nodes[0], lowering, find_operand(graph.nodes[0], lowering))


def test_a_function_that_is_infinite_somewhere_has_no_curve() -> None:
    graph = unary("Reciprocal", SIXTEEN, SIXTEEN)
    lowering = Lowering(graph)
    with pytest.raises(Refused, match="Reciprocal is not finite everywhere"):
        fit_curve(graph.nodes[0], lowering, find_operand(graph.nodes[0], lowering))


def test_a_curve_gives_narrow_integers_only() -> None:
    graph = unary("Dequantize", SIXTEEN, Storage(DType.F32, None))
    lowering = Lowering(graph)
    with pytest.raises(Refused, match="y is f32; no curve gives that"):
        fit_curve(graph.nodes[0], lowering, find_operand(graph.nodes[0], lowering))


@pytest.mark.parametrize(
    ("shapes", "constant", "message"),
    [
        (((2, 3), (2, 3)), None, "Add combines several operands; a table holds a function of one"),
        (((2, 3),), np.ones(3, np.int8), "Add combines several operands; a table holds a function of one"),
        (((2, 3),), np.ones((1, 1, 1), np.int8), "y has another shape than x"),
    ],
)
def test_a_table_has_one_operand(
    shapes: tuple[tuple[int, ...], ...], constant: np.ndarray | None, message: str
) -> None:
    builder = Builder("g")
    operands = [builder.input("xz"[i], DType.I8, shape, EIGHT.quant) for i, shape in enumerate(shapes)]
    if constant is not None:
        operands.append(builder.weight("w", constant, EIGHT.quant))
    y = builder.one("Add", operands, outputs=[builder.reserve_output("y", EIGHT)])
    graph = builder.finish([y])
    with pytest.raises(Refused, match=message):
        find_operand(graph.nodes[0], Lowering(graph))
