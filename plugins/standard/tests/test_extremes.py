"""Integers of 64 bits, half precision, infinities, NaN and tensors without elements in all transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core.attributes import Attribute
from mace_core.ir import Array, DType, Graph
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_transform_standard.combine.fold_conv_conv import fold_conv_conv
from mace_transform_standard.combine.fold_input import fold_input
from mace_transform_standard.combine.fuse_activation import fuse_activation
from mace_transform_standard.combine.fuse_scale_shift import fuse_scale_shift
from mace_transform_standard.combine.remove_limits import remove_limits
from mace_transform_standard.fold.fold_batch_norm import fold_batch_norm
from mace_transform_standard.fold.fold_scale import fold_scale
from mace_transform_standard.fold.fuse_bias import fuse_bias
from mace_transform_standard.fuse.fuse_affine import fuse_affine
from mace_transform_standard.layout.fuse_group_norm import fuse_group_norm
from mace_transform_standard.quantize import remove_dead_channels as dead_channels

PLAIN: dict[str, Attribute] = {
    "strides": (1, 1),
    "pads_before": (0, 0),
    "pads_after": (0, 0),
    "dilations": (1, 1),
}
Transform = Callable[[Graph], Graph]


def same_bits(transform: Transform, graph: Graph, x: Array) -> list[str]:
    """Assert that a graph of one input computes the same after a transform; return the names of its ops."""
    after = verify(transform(graph))
    inputs = {graph.inputs[0]: x}
    expected, actual = execute(graph, inputs), execute(after, inputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(actual[name], expected[name])
    return [node.op.name for node in after.nodes]


@pytest.mark.parametrize("transform", [fuse_activation, remove_limits])
@pytest.mark.parametrize("inner", [(2**53, 2**53 + 3), (-(2**53) - 1, 2**62 + 1), (3, 2), (2.5, 7.5)])
@pytest.mark.parametrize("outer", [(2**53 + 1, 2**53 + 2), (2**53 + 1, 2**62), (-2.5, 5.5), (0, 2**63 - 2)])
def test_limits_of_64_bits_are_exact(
    transform: Transform, inner: tuple[float, float], outer: tuple[float, float]
) -> None:
    e = Expressions()
    limited = e("Clip", e.input(8, dtype=DType.I64), min=inner[0], max=inner[1])
    graph = e.graph(e("Clip", limited, min=outer[0], max=outer[1]))
    ends = np.iinfo(np.int64)
    x = np.array([ends.min, -(2**53) - 1, -3, 0, 2, 7, 2**53 + 1, ends.max], np.int64)
    same_bits(transform, graph, x)


def test_limits_beyond_a_type_are_its_ends() -> None:
    e = Expressions()
    limited = e("Clip", e.input(4, dtype=DType.I8), min=2**40, max=2**41)
    graph = e.graph(e("Clip", limited, min=-1, max=1000))
    assert same_bits(fuse_activation, graph, np.array([-128, -1, 0, 127], np.int8)) == ["Clip"]


@pytest.mark.parametrize(("low", "ops"), [(2.5, ["MatMul"]), (2**53 + 1, ["MatMul", "Clip"])])
def test_a_product_of_integers_takes_in_what_its_limits_can_be(low: float, ops: list[str]) -> None:
    e = Expressions()
    product = e("MatMul", e.input(2, 2, dtype=DType.I64), e.array(np.eye(2), "i8"))
    graph = e.graph(e("Clip", product, min=low))
    assert same_bits(fuse_activation, graph, np.array([[1, 2], [3, 2**60]], np.int64)) == ops


def one_half(e: Expressions, value: float) -> str:
    return e.array(value, "f2")


def half_vector(e: Expressions, value: float) -> str:
    return e.array([value] * 8, "f2")


def half_product(e: Expressions, x: str, value: float, *bias: float) -> str:
    """A product with a matrix of one column."""
    return e("MatMul", x, e.array([[value]] * 8, "f2"), *(e.array([b], "f2") for b in bias))


HALVES: Sequence[tuple[Transform, Callable[[Expressions, str], str], float]] = (
    (fuse_scale_shift, lambda e, x: e("Mul", e("Add", x, one_half(e, 6e4)), one_half(e, 10)), -59968),
    (fold_scale, lambda e, x: e("Mul", half_product(e, x, 3e4), one_half(e, 10)), 1e-4),
    (fold_scale, lambda e, x: e("Mul", half_product(e, x, 0.01), one_half(e, 1e-4)), 1e4),
    (fold_scale, lambda e, x: e("Mul", half_product(e, x, 1, 6e4), one_half(e, 2)), -7e3),
    (fold_input, lambda e, x: half_product(e, e("Mul", x, one_half(e, 1e4)), 100), 1e-5),
    (fold_input, lambda e, x: half_product(e, e("Add", x, one_half(e, 6e4)), 2), -59968),
    (fuse_bias, lambda e, x: e("Add", half_product(e, x, 1, 4e4), one_half(e, 4e4)), -7e3),
    (fuse_affine, lambda e, x: e("Mul", e("LayerNorm", x, half_vector(e, 6e4)), one_half(e, 20)), 0),
    (fold_batch_norm, lambda e, x: e("BatchNorm", x, *(half_vector(e, v) for v in (6e4, 0, 0, 1e-4))), 1e-3),
)
"""Constants of half precision whose product or sum it cannot hold, and an operand of small results."""


@pytest.mark.parametrize("number", range(len(HALVES)))
def test_constants_of_half_precision_are_not_joined_beyond_it(number: int) -> None:
    transform, write, value = HALVES[number]
    e = Expressions()
    graph = e.graph(write(e, e.input(4, 8, dtype=DType.F16)))
    x = np.full((4, 8), value, np.float16)
    expected = execute(graph, {"x0": x})[graph.outputs[0]]
    assert np.isfinite(expected).all()
    assert same_bits(transform, graph, x) == [node.op.name for node in graph.nodes]


def test_filters_of_half_precision_are_not_multiplied_beyond_it() -> None:
    e = Expressions()
    inner = e(
        "Conv", e.input(1, 4, 4, 2, dtype=DType.F16), e.array(np.full((4, 1, 1, 2), 300), "f2"), **PLAIN
    )
    graph = e.graph(e("Conv", inner, e.array(np.full((1, 1, 1, 4), 300), "f2"), **PLAIN))
    assert same_bits(fold_conv_conv, graph, np.full((1, 4, 4, 2), 1e-3, np.float16)) == ["Conv", "Conv"]


@pytest.mark.parametrize(
    ("op", "constant", "factor"),
    [("Log", -1.0, 0.5), ("Log", 0.0, 0.5), ("Exp", 80.0, 1e-30), ("Exp", 1e5, 0.5)],
)
def test_a_channel_of_no_finite_number_stays(
    monkeypatch: pytest.MonkeyPatch, op: str, constant: float, factor: float
) -> None:
    monkeypatch.setattr(dead_channels, "GRANULE", 1)
    e = Expressions()
    filters, bias = np.zeros((3, 1, 1, 2)), np.array([1.0, constant, 1.0])
    filters[0] = 1e-3
    first = e("Conv", e.input(1, 2, 2, 2), e.array(filters), e.array(bias), **PLAIN)
    graph = e.graph(e("Conv", e(op, first), e.array(np.full((2, 1, 1, 3), factor)), **PLAIN))
    x = np.ones((1, 2, 2, 2), np.float32)
    assert same_bits(dead_channels.remove_dead_channels, graph, x) == ["Conv", op, "Conv"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_constants_are_analyzed_without_a_warning(value: float) -> None:
    e = Expressions()
    filters, others = np.zeros((3, 1, 1, 2)), np.ones((2, 1, 1, 3))
    filters[0], others[0, 0, 0, 1] = 1, value
    first = e("Conv", e.input(1, 2, 2, 2), e.array(filters), e.array([1, 2, 3]), **PLAIN)
    second = e("Conv", e("Mul", first, e.array([1, value, 0])), e.array(others), **PLAIN)
    graph = e.graph(e("Add", e("Sub", second, e.array([value, value])), e.array([-value, value])))
    after = verify(dead_channels.remove_dead_channels(graph))
    assert [node.op.name for node in after.nodes] == ["Conv", "Mul", "Conv", "Sub", "Add"]


def test_a_bias_of_half_precision_takes_in_no_more_than_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_channels, "GRANULE", 1)
    e = Expressions()
    filters = np.zeros((2, 1, 1, 2))
    filters[0] = 1
    first = e(
        "Conv", e.input(1, 2, 2, 2, dtype=DType.F16), e.array(filters, "f2"), e.array([0, 250], "f2"), **PLAIN
    )
    graph = e.graph(e("Conv", e("Relu", first), e.array([[[[-300, 300]]]], "f2"), **PLAIN))
    same_bits(dead_channels.remove_dead_channels, graph, np.full((1, 2, 2, 2), 124, np.float16))


def test_tensors_without_axes_or_elements_stay() -> None:
    e = Expressions()
    scalar = e("Relu", e("Pad", e.input(), before=(), after=()))
    assert ops_after([dead_channels.remove_dead_channels], e.graph(scalar), 0) == ["Pad", "Relu"]
    e = Expressions()
    empty = e("Add", e("Mul", e.input(1, 4, 0), e.array(np.ones((1, 4, 0)))), e.array(np.ones((1, 4, 0))))
    assert ops_after([fuse_scale_shift], e.graph(empty), 0) == ["Mul", "Add"]
    e = Expressions()
    norm = e.input(2, 0, 4)
    for op, attrs in (
        ("Reshape", {"shape": (2, 0, 3)}),
        ("Transpose", {"perm": (0, 2, 1)}),
        ("InstanceNorm", {}),
        ("Transpose", {"perm": (0, 2, 1)}),
        ("Reshape", {"shape": (2, 0, 4)}),
    ):
        vectors = [e.array(np.ones(0)), e.array(np.ones(0))] if op == "InstanceNorm" else []
        norm = e(op, norm, *vectors, **attrs)
    graph = e.graph(norm)
    assert ops_after([fuse_group_norm], graph, 0) == [node.op.name for node in graph.nodes]
