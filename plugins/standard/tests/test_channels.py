"""What is known of channels before any is left out: which belong together, what they hold, which products have some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_transform_standard import channel_ranges
from mace_transform_standard.channel_links import RULES
from mace_transform_standard.channel_products import read_product
from mace_transform_standard.quantize import remove_dead_channels

EACH = Quant((0.1, 0.2, 0.3, 0.4), (0, 0, 0, 0), 3)
"""A scale for each channel."""

Constant: TypeAlias = tuple[np.generic | Array, Quant | None]
"""The elements of a weight and their quantization."""

FLOAT, INTEGER, STORED = Storage(DType.F32, None), Storage(DType.I32, None), Storage(DType.I8, Quant.of(0.5, 3))
PLAIN: dict[str, Attribute] = {
    "strides": (1, 1),
    "pads_before": (0, 0),
    "pads_after": (0, 0),
    "dilations": (1, 1),
}


def node(
    op: str,
    *shapes: tuple[int, ...],
    kind: Storage = FLOAT,
    constants: Sequence[Constant] = (),
    **attrs: Attribute,
) -> Graph:
    """Return a graph of one node: computed operands of these shapes, then constants."""
    new = Builder("g")
    names = [new.input(f"x{i}", kind.dtype, shape, kind.quant) for i, shape in enumerate(shapes)]
    for array, quant in constants:
        names.append(new.weight("c", np.asarray(array), quant))
    outputs: int | list[str] = 2 if op == "Split" else 1
    if kind.quant:
        outputs = [new.reserve_output("y", kind)]
    return new.finish(new.add(op, names, attrs, outputs=outputs))


def links(graph: Graph) -> list[tuple[list[int], list[int]]] | None:
    (only,) = graph.nodes
    found = RULES[only.op.name](only, graph)
    return found and [(link.x_channels.tolist(), link.y_channels.tolist()) for link in found]


ALL = [0, 1, 2, 3]
IMAGE = (1, 2, 2, 4)
ZEROS = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (node("Add", IMAGE, IMAGE), [(ALL, ALL)] * 2),
        (node("Add", IMAGE, (1, 2, 2, 1)), None),
        (node("Add", IMAGE, constants=((ZEROS, None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS[:1], None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS[0], None),)), [(ALL, ALL)]),
        (node("Add", (1, 2, 2, 1), constants=((ZEROS, None),)), None),
        (node("Mul", IMAGE, kind=STORED, constants=((ZEROS.astype("i1"), Quant.of(0.1)),)), [(ALL, ALL)]),
        (node("Mul", IMAGE, kind=STORED, constants=((np.zeros((1, 1, 1, 4), "i1"), EACH),)), None),
        (node("ReduceMean", IMAGE, axes=(1, 2)), [(ALL, ALL)]),
        (node("ReduceMean", IMAGE, axes=(0,), keepdims=False), [(ALL, ALL)]),
        (node("ReduceMean", IMAGE, axes=(1, 3)), None),
        (node("ReduceMean", IMAGE, axes=(-1,)), None),
        (node("ReduceMean", (1, 2, 2, 1), axes=(-1,)), None),
        (node("Pad", IMAGE, before=(0, 1, 0, 0), after=(0, 0, 2, 0)), [(ALL, ALL)]),
        (node("Pad", IMAGE, before=(0, 0, 0, 1), after=(0, 0, 0, 0)), None),
        (node("Pad", IMAGE, before=(0, 0, 0, 0), after=(0, 0, 0, 1)), None),
        (node("Concat", IMAGE, (1, 2, 2, 2), axis=3), [(ALL, ALL), ([0, 1], [4, 5])]),
        (node("Concat", IMAGE, (1, 3, 2, 4), axis=1), [(ALL, ALL), (ALL, ALL)]),
        (node("Concat", IMAGE, axis=-1, constants=((np.zeros(IMAGE, "f4"), None),)), None),
        (node("Split", IMAGE, axis=3, sizes=(1, 3)), [([0], [0]), ([1, 2, 3], [0, 1, 2])]),
        (node("Reshape", IMAGE, shape=(4, 4)), [(ALL, ALL)]),
        (node("Reshape", IMAGE, shape=(2, 8)), [(ALL * 2, list(range(8)))]),
        (node("Reshape", IMAGE, shape=(8, 2)), None),
        (node("Reshape", (0, 4), shape=(0, 2, 2)), None),
        (node("MaxPool", IMAGE, **PLAIN, kernel=(2, 2)), [(ALL, ALL)]),
    ],
)  # fmt: skip
def test_channels_that_belong_together(
    graph: Graph, expected: list[tuple[list[int], list[int]]] | None
) -> None:
    assert links(graph) == expected


@pytest.mark.parametrize(
    ("graph", "is_known"),
    [
        (node("Relu", IMAGE), True),
        (node("Relu", IMAGE, kind=STORED), True),
        (node("Relu", IMAGE, kind=INTEGER), False),
        (node("Relu", (0, 4)), False),
        (node("Relu", IMAGE, kind=Storage(DType.I8, EACH)), False),
        (node("Softmax", IMAGE), False),
    ],
)
def test_ops_whose_channels_are_followed(graph: Graph, is_known: bool) -> None:
    assert (remove_dead_channels._link(graph.nodes[0], graph) is not None) == is_known


def weights(*shape: int, dtype: str = "f4") -> Array:
    numbers: Array = np.arange(1, np.prod(shape) + 1).reshape(shape) % 9
    return numbers.astype(dtype)


@pytest.mark.parametrize(
    ("graph", "is_read"),
    [
        (node("Conv", IMAGE, constants=((weights(6, 1, 1, 4), None),), **PLAIN), True),
        (node("Conv", IMAGE, constants=((weights(4, 1, 1, 1), None),), **PLAIN, group=4), True),
        (node("Conv", IMAGE, constants=((weights(8, 1, 1, 1), None),), **PLAIN, group=4), False),
        (node("Conv", IMAGE, constants=((weights(6, 1, 1, 2), None),), **PLAIN, group=2), False),
        (node("Conv", IMAGE, (6, 1, 1, 4), **PLAIN), False),
        (node("Conv", IMAGE, constants=((weights(6, 1, 1, 4, dtype="i1"), Quant.of(0.1)),), **PLAIN), False),
        (node("Conv", IMAGE, kind=STORED, constants=((weights(6, 1, 1, 4, dtype="i1"), Quant.of(0.1)),), **PLAIN), True),
        (node("Conv", IMAGE, kind=Storage(DType.I8, EACH), constants=((weights(4, 1, 1, 4, dtype="i1"), Quant.of(0.1)),), **PLAIN), False),
        (node("MatMul", (3, 4), constants=((weights(4, 2), None),)), True),
        (node("MatMul", (4,), constants=((weights(4, 2), None),)), False),
        (node("MatMul", (2, 3, 4), constants=((weights(2, 4, 2), None),)), False),
        (node("Relu", (3, 4)), False),
    ],
)  # fmt: skip
def test_products_whose_channels_are_read(graph: Graph, is_read: bool) -> None:
    assert (read_product(graph.nodes[0], graph) is not None) == is_read


@pytest.mark.parametrize(
    ("array", "quant", "low", "high"),
    [
        (np.array([[1, -2], [3, 5]], "f4"), None, [1, -2], [3, 5]),
        (np.array([[[7, 1]], [[2, 9]]], "u1"), Quant.of(0.5, 4), [-1, -1.5], [1.5, 2.5]),
        (np.array(6, "f4"), None, [6], [6]),
        (np.array(9, "i1"), Quant.of(0.5, 3), [3], [3]),
    ],
)
def test_what_a_constant_holds_by_channel(
    array: Array, quant: Quant | None, low: list[float], high: list[float]
) -> None:
    graph = node("Add", (2, 1, 2), constants=((array, quant),))
    found = channel_ranges._read_operand(graph.nodes[0].inputs[1], graph, {})
    assert [side.tolist() for side in found] == [low, high]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(-10, 5, (0, 5)), (2, 2, (2, 2)), (-10, -1, (0, 0)), (-131, 124, (0, 124))]
)
def test_a_function_of_eight_bits_is_bounded_by_the_values_that_reach_it(
    low: int, high: int, expected: tuple[int, int]
) -> None:
    """In steps of the scale, counted from the zero point."""
    graph = node("Relu", IMAGE, kind=STORED)
    found = channel_ranges._bound_unary(graph.nodes[0], graph, (np.full(4, low), np.full(4, high)))
    assert [side.tolist() for side in found] == [[expected[0]] * 4, [expected[1]] * 4]


@pytest.mark.parametrize(
    ("tensor", "limits"),
    [
        (FLOAT, (-1e30, 1e30)),
        (STORED, (-131, 124)),
        (Storage(DType.U8, Quant.of(0.1, 128)), (-128, 127)),
        (Storage(DType.I8, EACH), (-1e30, 1e30)),
    ],
)
def test_what_a_tensor_can_store(tensor: Storage, limits: tuple[float, float]) -> None:
    graph = node("Relu", IMAGE, kind=tensor)
    low, high = channel_ranges.default_range(graph.tensors["x0"])
    assert (low.tolist(), high.tolist()) == ([limits[0]] * 4, [limits[1]] * 4)
