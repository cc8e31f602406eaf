"""What is known of channels before any is left out: which belong together, what they hold, which products have some."""

from __future__ import annotations

import numpy as np
import pytest
from channel_graphs import EACH, IMAGE, INTEGER, PLAIN, STORED, node, weights

from mace_core.ir import DType, Graph, Quant, Storage
from mace_transform_standard.channel_links import RULES
from mace_transform_standard.channel_products import read_product
from mace_transform_standard.quantize import remove_dead_channels


def links(graph: Graph) -> list[tuple[list[int], list[int]]] | None:
    (only,) = graph.nodes
    result = RULES[only.op.name](only, graph)
    return result and [(link.x_channels.tolist(), link.y_channels.tolist()) for link in result]


ALL = [0, 1, 2, 3]
ZEROS = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (node("Add", IMAGE, IMAGE), [(ALL, ALL)] * 2),
        (node("Add", IMAGE, (1, 2, 2, 1)), None),
        (node("Add", IMAGE, constants=((ZEROS, None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS[:1], None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS.reshape(1, 1, 1, 4), None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS[:2].reshape(2, 1), None),)), [(ALL, ALL)]),
        (node("Add", IMAGE, constants=((ZEROS[0], None),)), [(ALL, ALL)]),
        (node("Add", (1, 2, 2, 1), constants=((ZEROS, None),)), None),
        (node("Mul", IMAGE, kind=STORED, constants=((ZEROS.astype("i1"), Quant.of(0.1)),)), [(ALL, ALL)]),
        (node("Mul", IMAGE, kind=STORED, constants=((np.zeros((1, 1, 1, 4), "i1"), EACH),)), None),
        (node("ReduceMean", IMAGE, axes=(1, 2)), [(ALL, ALL)]),
        (node("ReduceMean", IMAGE, axes=(0,), keepdims=False), [(ALL, ALL)]),
        (node("ReduceMean", IMAGE, axes=(1, 3)), None),
        # What is last then is another axis, which has as many elements.
        (node("ReduceMean", (1, 4, 4), axes=(2,), keepdims=False), None),
        (node("ReduceMean", IMAGE, axes=(-1,)), None),
        (node("ReduceMean", (1, 2, 2, 1), axes=(-1,)), None),
        (node("Pad", IMAGE, before=(0, 1, 0, 0), after=(0, 0, 2, 0)), [(ALL, ALL)]),
        (node("Pad", IMAGE, before=(0, 0, 2, 0), after=(0, 1, 0, 0)), [(ALL, ALL)]),
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
        (node("MatMul", (3, 4), constants=((weights(4, 0), None),)), False),
        (node("Conv", IMAGE, constants=((weights(1, 1, 1, 4), None),), **PLAIN), True),
        (node("Relu", (3, 4)), False),
    ],
)  # fmt: skip
def test_products_whose_channels_are_read(graph: Graph, is_read: bool) -> None:
    assert (read_product(graph.nodes[0], graph) is not None) == is_read


def test_a_product_in_units_of_its_sums() -> None:
    """Sums of steps of 0.5 * 0.1 and 0.5 * 0.2: biases of (5 - 2) * 0.2 and (4 - 2) * 0.2 are 12 and 4 of those."""
    w = (np.array([[130, 127], [128, 126]], "u1"), Quant((0.1, 0.2), (128, 126), 1))
    bias = (np.array([5, 4], "i4"), Quant.of(0.2, 2))
    graph = node("MatMul", (3, 2), kind=STORED, constants=(w, bias))
    product = read_product(graph.nodes[0], graph)
    assert product is not None
    assert product.weights.tolist() == [[[2, 0]], [[1, 0]]]
    assert product.unit.tolist() == [0.05, 0.1]
    assert product.bias.tolist() == [12, 4]
    assert (product.axis, product.input_axis, product.macs) == (1, 0, 3 * 2 * 2)
    assert product.read_weights().tolist() == [[True, False], [True, False]]


def test_weights_of_sixteen_bits_less_a_zero_point_need_more() -> None:
    w = (np.array([[[[32767, -32768, 0, 1]]]], "i2"), Quant.of(0.1, -5))
    graph = node("Conv", IMAGE, kind=STORED, constants=(w,), **PLAIN)
    product = read_product(graph.nodes[0], graph)
    assert product is not None
    assert product.weights.tolist() == [[[32772, -32763, 5, 6]]]


def test_a_bias_of_floats_is_not_rounded() -> None:
    graph = node("MatMul", (3, 4), constants=((weights(4, 2), None), (np.array([0.25, 1.5], "f4"), None)))
    product = read_product(graph.nodes[0], graph)
    assert product is not None
    assert (product.unit.tolist(), product.bias.tolist()) == ([1, 1], [0.25, 1.5])


@pytest.mark.parametrize(
    ("weight", "bias", "has_room"),
    # A step lies up to 131 from the zero point 3: 127 * 131 * 4 = 66548, and the rest up to 2 ** 31 - 1.
    [(127, 2**31 - 1 - 66548, True), (127, 2**31 - 66548, False), (-127, 66548 - 2**31, False)],
)
def test_sums_have_room_for_more_as_long_as_none_leaves_32_bits(
    weight: int, bias: int, has_room: bool
) -> None:
    w, b = np.full((1, 1, 1, 4), weight, "i1"), np.array([bias], "i4")
    graph = node("Conv", IMAGE, kind=STORED, constants=((w, Quant.of(0.1)), (b, Quant.of(0.05))), **PLAIN)
    product = read_product(graph.nodes[0], graph)
    assert product is not None
    assert product.has_room(np.zeros(4)) == has_room
