"""Weights and bias that are rounded together."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Node
from mace_target_max78000.quantize.calibrate import TensorStatistics
from mace_target_max78000.quantize.weights import WeightRounding, describe_rounding, reshape_rows


def rounding(rows: list[list[float]], bias: list[float], **changes: object) -> WeightRounding:
    array = np.array(rows)
    plain = {
        "rows": array,
        "bias": np.array(bias),
        "mean": np.zeros((1, array.shape[1])),
        "variance": np.ones((1, array.shape[1])),
        "data": 0,
        "result": None,
    }
    return WeightRounding(**{**plain, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("bits", "low", "high"), [(8, -128, 127), (4, -8, 7), (2, -2, 1), (1, -1, 0)])
def test_weights_that_fit_are_kept(bits: int, low: int, high: int) -> None:
    chosen = rounding([[low / 4, high / 4]], [0.0]).choose(bits)
    assert chosen.values.tolist() == [[low, high]]
    assert (chosen.power, chosen.bits, chosen.error) == (-2, bits, 0.0)


def test_coarser_steps_lengthen_the_reach_of_a_bias() -> None:
    """A bias counts 128 steps of the sum: 127 of them reach 127 at weights of 2 ** -7, and 1016 at 2 ** -4."""
    assert rounding([[1.0]], [127.0]).choose(8).bias.tolist() == [127]
    far = rounding([[1.0]], [1000.0]).choose(8)
    assert far.power == -4
    assert far.bias.tolist() == [125]
    assert far.values.tolist() == [[16]]


def test_the_mean_of_what_rounding_adds_goes_into_the_bias() -> None:
    """1.3 of 2 bits is 1 in steps of one: of inputs whose mean is 10, three are lost."""
    chosen = rounding([[-2.0, 1.3]], [0.0], mean=np.array([[0.0, 10.0]]), data=-7).choose(2)
    assert chosen.power == 0
    assert chosen.values.tolist() == [[-2, 1]]
    assert chosen.bias.tolist() == [3]
    # 0.3 squared for a variance of one; the bias is exact.
    assert chosen.error == pytest.approx(0.09)


def test_steps_that_the_hardware_cannot_shift_to_are_not_chosen() -> None:
    """The shift is power + data - result + 7, from -15 to 15."""
    for result in range(-40, 40):
        chosen = rounding([[1.0, 0.5]], [0.0], result=result).choose(8)
        assert -15 <= chosen.power - result + 7 <= 15
    assert rounding([[1.0, 0.5]], [0.0], result=0).choose(8).values.tolist() in (
        [[128 // 2, 32]],
        [[127, 64]],
    )
    # The nearest power that can be shifted, where no better one can.
    assert rounding([[1.0]], [0.0], result=-40).choose(8).power == -32
    assert rounding([[1.0]], [0.0], result=40).choose(8).power == 18


def test_a_layer_of_zeros() -> None:
    chosen = rounding([[0.0, 0.0]], [0.0]).choose(8)
    assert (chosen.values.tolist(), chosen.bias.tolist(), chosen.error) == ([[0, 0]], [0], 0)


def node_of(op: str, weights: tuple[int, ...], shape: tuple[int, ...], **attrs: object) -> Node:
    builder = Builder("graph")
    x = builder.input("x", DType.F32, shape)
    w = builder.weight("w", np.zeros(weights, np.float32))
    builder.add(op, [x, w], attrs, outputs=["y"])
    return builder.finish(["y"]).nodes[0]


def seen(mean: list[float]) -> TensorStatistics:
    array = np.array(mean)
    return TensorStatistics(array, array, array**2 + array, 0.0, 1.0)


WINDOW = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}


def test_each_row_multiplies_the_channels_that_it_reads() -> None:
    node = node_of("Conv", (4, 1, 2, 2), (1, 3, 3, 4), **WINDOW, group=2)
    weights = np.arange(16, dtype=np.float32).reshape(4, 1, 2, 2)
    described = describe_rounding(node, [weights], seen([1, 2, 3, 4]), (-3, -2))
    assert described.rows.tolist() == weights.reshape(4, 4).tolist()
    assert described.bias.tolist() == [0, 0, 0, 0]
    assert described.mean.tolist() == [[1, 2] * 2] * 2 + [[3, 4] * 2] * 2
    assert described.variance.tolist() == described.mean.tolist()
    assert (described.data, described.result) == (-3, -2)


def test_a_matrix_reads_each_channel_once_for_every_position() -> None:
    node = node_of("MatMul", (6, 2), (1, 6))
    weights = np.arange(12, dtype=np.float32).reshape(6, 2)
    described = describe_rounding(node, [weights, np.array([5.0, 6.0])], seen([1, 2]), (0, None))
    assert described.rows.tolist() == weights.T.tolist()
    assert described.mean.tolist() == [[1, 2, 1, 2, 1, 2]]
    assert described.bias.tolist() == [5, 6]
    rows = np.arange(12.0).reshape(2, 6)
    assert reshape_rows(rows, node, (6, 2)).tolist() == rows.T.tolist()
    assert reshape_rows(rows, node, (6, 2)).dtype == np.int8


def test_rows_of_filters_get_their_shape_back() -> None:
    node = node_of("Conv", (2, 1, 1, 3), (1, 1, 1, 3), **WINDOW)
    assert reshape_rows(np.arange(6.0).reshape(2, 3), node, (2, 1, 1, 3)).shape == (2, 1, 1, 3)
