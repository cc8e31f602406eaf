"""Bounds of what channels hold, computed by hand: stored integers in steps from their zero point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from channel_graphs import EACH, FLOAT, IMAGE, PLAIN, STORED, Constant, node

from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_transform_standard import channel_ranges
from mace_transform_standard.channel_products import read_product
from mace_transform_standard.quantize import remove_dead_channels

OPEN = 1e30
WIDE = Storage(DType.I16, Quant.of(0.5))
Bounds = tuple[Sequence[float], Sequence[float]]


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
    result = channel_ranges._read_operand(graph.nodes[0].inputs[1], graph, {})
    assert [side.tolist() for side in result] == [low, high]


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


def bound(graph: Graph, *operands: Bounds) -> Bounds:
    """Return the bounds of the only result; operands: those of the inputs."""
    (only,) = graph.nodes
    pairs = zip(graph.inputs, operands, strict=True)
    ranges = {name: (np.array(low, float), np.array(high, float)) for name, (low, high) in pairs}
    links = remove_dead_channels._link(only, graph)
    assert links is not None
    low, high = channel_ranges.bound_result(only, graph, ranges, links)[only.outputs[0]]
    return low.tolist(), high.tolist()


POINT = (1, 1, 1, 2)
WINDOW = {**PLAIN, "kernel": (2, 2)}
PADDED = {**WINDOW, "pads_before": (1, 1), "pads_after": (1, 1)}
FAR = {**WINDOW, "pads_before": (0, 2), "pads_after": (0, 0)}
BELOW = {**WINDOW, "pads_before": (0, 0), "pads_after": (2, 0)}
THREE: Constant = (np.array([10], "i1"), Quant.of(0.5, 4))
SIGNED: Bounds = ([2, -5], [3, -4])
"""What two channels hold: one is positive, one negative."""


@pytest.mark.parametrize(
    ("graph", "operands", "expected"),
    [
        # A function of floats is known of constants only.
        (node("Relu", IMAGE), [([1, -2, -OPEN, 0], [1, -2, OPEN, 5])], ([1, 0, -OPEN, -OPEN], [1, 0, OPEN, OPEN])),
        # Eight bits: all values between both ends are tried.
        (node("Relu", POINT, kind=STORED), [([-131, -10], [-7, 5])], ([0, 0], [0, 5])),
        (node("Relu", POINT, kind=STORED), [([2, -10], [2, -1])], ([2, 0], [2, 0])),
        (node("Relu", POINT, kind=STORED), [([-131, -131], [124, -131])], ([0, 0], [124, 0])),
        (node("Abs", POINT, kind=STORED), [([-20, -10], [-7, 5])], ([7, 0], [20, 10])),
        (node("Abs", POINT, kind=STORED), [([-131, 124], [-130, 124])], ([124, 124], [124, 124])),
        # Sixteen bits: only of what copies elements.
        (node("Tanh", POINT, kind=WIDE), [([0, 3], [0, 4])], ([-32768] * 2, [32767] * 2)),
        (node("Identity", POINT, kind=WIDE), [([9, 3], [9, 4])], ([9, -32768], [9, 32767])),
        # A window reads what its input holds, and zeros of the padding where they count.
        (node("MaxPool", (1, 3, 3, 2), **WINDOW), [SIGNED], SIGNED),
        (node("MaxPool", (1, 3, 3, 2), **PADDED), [SIGNED], SIGNED),
        (node("MaxPool", (1, 3, 3, 2), **FAR), [SIGNED], ([-OPEN] * 2, [OPEN] * 2)),
        (node("MaxPool", (1, 3, 3, 2), **BELOW), [SIGNED], ([-OPEN] * 2, [OPEN] * 2)),
        (node("MaxPool", (1, 3, 3, 2), **WINDOW, ceil=True), [SIGNED], ([-OPEN] * 2, [OPEN] * 2)),
        (node("MaxPool", (1, 3, 4, 2), **{**WINDOW, "dilations": (1, 2)}), [SIGNED], SIGNED),
        (node("MaxPool", (1, 3, 4, 2), **{**PADDED, "dilations": (1, 2)}), [SIGNED], ([-OPEN] * 2, [OPEN] * 2)),
        (node("AveragePool", (1, 3, 3, 2), **PADDED), [SIGNED], SIGNED),
        (node("AveragePool", (1, 3, 3, 2), **PADDED, count_pad=True), [SIGNED], ([0, -5], [3, 0])),
        (node("AveragePool", (1, 3, 3, 2), **FAR), [SIGNED], ([0, -5], [3, 0])),
        (node("Pad", POINT, before=(0, 1, 0, 0), after=(0, 0, 0, 0), value=2.5), [SIGNED], ([2, -5], [3, 2.5])),
        (node("Pad", (1, 2, 2, 2), before=(0, 1, 0, 0), after=(0, 0, 0, 0), mode="reflect", value=9.0), [SIGNED], SIGNED),
        (node("ReduceMax", (1, 2, 2, 2), axes=(1, 2)), [SIGNED], SIGNED),
        # Parts lie side by side, or one over the other.
        (node("Concat", POINT, (1, 1, 1, 1), axis=3), [SIGNED, ([7], [8])], ([2, -5, 7], [3, -4, 8])),
        (node("Concat", POINT, POINT, axis=1), [SIGNED, ([1, 0], [2, 1])], ([1, -5], [3, 1])),
        # The extremes of two operands lie where theirs do.
        (node("Add", POINT, POINT), [SIGNED, ([10, 20], [11, 30])], ([12, 15], [14, 26])),
        (node("Sub", POINT, POINT), [SIGNED, ([10, 20], [11, 30])], ([-9, -35], [-7, -24])),
        (node("Mul", POINT, POINT), [SIGNED, ([-1, 2], [4, 3])], ([-3, -15], [12, -8])),
        (node("Minimum", POINT, POINT), [SIGNED, ([0, -9], [9, 9])], ([0, -9], [3, -4])),
        (node("Maximum", POINT, POINT), [SIGNED, ([0, -9], [9, 9])], ([2, -5], [9, 9])),
        # 0.5 a step: the sum of 4 and 6 steps and a constant of 3 is 16 steps.
        (node("Add", POINT, kind=STORED, constants=(THREE,)), [([4, 200], [5, 200])], ([10, 124], [11, 124])),
    ],
)  # fmt: skip
def test_bounds_of_results(graph: Graph, operands: list[Bounds], expected: Bounds) -> None:
    assert bound(graph, *operands) == expected


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        # Steps of 0.5. Nearer than a 256th of a step to the middle between two, either may be stored.
        (0.2, (0, 0)), (0.248, (0, 0)), (0.2485, (0, 1)), (0.25, (0, 1)), (0.2515, (0, 1)), (0.252, (1, 1)),
        (-0.25, (-1, 0)), (-0.252, (-1, -1)), (1e6, (124, 124)), (-1e6, (-131, -131)),
        # Sums are scaled in single precision, so that a millionth of a large one is doubtful, too.
        (50.2475, (100, 100)), (50.2481, (100, 101)),
    ],
)  # fmt: skip
def test_a_constant_that_is_stored(real: float, expected: tuple[int, int]) -> None:
    tensor = node("Relu", POINT, kind=STORED).tensors["x0"]
    low, high = channel_ranges._store(np.array([real]), np.array([real]), tensor)
    assert (int(low[0]), int(high[0])) == expected


PADDED_CONV = {**PLAIN, "pads_after": (0, 1)}
INTEGERS: Constant = (np.array([[[[1, -2]]], [[[0, 3]]]], "i1"), Quant.of(0.1))
FLOATS: Constant = (np.array([[[[1, -2]]], [[[0, 3]]]], "f4"), None)
EACH_FLOAT: Constant = (np.array([[[[2]]], [[[-3]]]], "f4"), None)
EACH_INTEGER: Constant = (np.array([[[[2]]], [[[-3]]]], "i1"), Quant.of(0.1))
FINE = Storage(DType.I8, Quant.of(0.05))
BIAS: Constant = (np.array([5, -5], "i4"), Quant.of(0.005))
UNIT = Storage(DType.I8, Quant.of(0.05, -1))
"""Sums of 0.05 * 0.1 are a tenth of a step."""


@pytest.mark.parametrize(
    ("graph", "operand", "expected"),
    [
        # 5 + [-10, 20] - 2 * [0, 30] = [-65, 25], -5 + 3 * [0, 30] = [-5, 85]; ten of them are a step.
        (node("Conv", POINT, kind=UNIT, constants=(INTEGERS, BIAS), **PLAIN), ([-10, 0], [20, 30]), ([-7, -1], [3, 9])),
        (node("Conv", POINT, kind=UNIT, constants=(INTEGERS, BIAS), **PLAIN, low=0.0, high=0.4), ([-10, 0], [20, 30]), ([0, 0], [3, 8])),
        (node("Conv", POINT, kind=FINE, constants=(EACH_INTEGER,), **PLAIN, group=2), ([-10, 10], [20, 30]), ([-2, -9], [4, -3])),
        # Floats are known where only constants are read.
        (node("Conv", POINT, constants=(FLOATS,), **PLAIN), ([4, 5], [4, 5]), ([-6, 15], [-6, 15])),
        (node("Conv", POINT, constants=(FLOATS,), **PLAIN), ([4, 5], [6, 5]), ([-OPEN, 15], [OPEN, 15])),
        (node("Conv", POINT, constants=(FLOATS,), **PLAIN), ([4, 5], [4, 6]), ([-OPEN, -OPEN], [OPEN, OPEN])),
        (node("Conv", POINT, constants=(EACH_FLOAT,), **PLAIN, group=2), ([4, 5], [6, 5]), ([-OPEN, -15], [OPEN, -15])),
        # A tap of the padding reads 0.
        (node("Conv", POINT, constants=(FLOATS,), **{**PLAIN, "pads_before": (0, 1)}), ([4, 0], [4, 0]), ([-OPEN, 0], [OPEN, 0])),
        (node("Conv", POINT, kind=UNIT, constants=(INTEGERS,), **PADDED_CONV), ([100, 10], [100, 10]), ([-2, 0], [10, 3])),
    ],
)  # fmt: skip
def test_bounds_of_products(graph: Graph, operand: Bounds, expected: Bounds) -> None:
    product = read_product(graph.nodes[0], graph)
    assert product is not None
    low, high = (np.array(side, float) for side in operand)
    result = channel_ranges.bound_product(product, {"x0": (low, high)})
    assert tuple(side.tolist() for side in result) == expected
