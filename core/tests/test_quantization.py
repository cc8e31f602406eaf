"""Real numbers stored as integers: rounding, saturation, axes, what is wrong with a storage, and which ops keep it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mace_core.attributes import Attributes
from mace_core.ir import DType, Quant, Storage, Tensor
from mace_core.ops import core_ops
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.shapes import AxisAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.quantization import STORED, compute, dequantize, fault, propagate_storage, quantize

OPS = core_ops()
I8 = Storage(DType.I8, Quant.of(0.5, 3))


@pytest.mark.parametrize(
    ("real", "stored"),
    [
        (0.0, 3),
        (0.25, 3),  # half a step: a tie goes to the even of the steps, before the zero point
        (0.75, 5),
        (-0.25, 3),
        (1e9, 127),
        (-1e9, -128),
        (np.inf, 127),
        (-np.inf, -128),
        (np.nan, -128),
    ],
)
def test_rounds_to_the_nearest_and_saturates(real: float, stored: int) -> None:
    assert quantize(np.array(real), I8) == stored
    assert quantize(np.array(real), I8).dtype == np.int8


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(STORED),
    scale=st.floats(1e-6, 1e6),
    data=st.data(),
)
def test_what_is_stored_comes_back(dtype: DType, scale: float, data: st.DataObject) -> None:
    limits = np.iinfo(dtype.numpy)
    integers = st.integers(int(limits.min), int(limits.max))
    storage = Storage(dtype, Quant.of(scale, data.draw(integers)))
    stored = np.array(data.draw(st.lists(integers, min_size=1, max_size=8)), dtype.numpy)
    np.testing.assert_array_equal(quantize(dequantize(stored, storage.quant), storage), stored)


def test_scales_lie_along_their_axis() -> None:
    quant = Quant((0.5, 2.0, 1.0), (0, 1, -1), axis=1)
    stored = np.ones((2, 3, 2), np.int8)
    real = dequantize(stored, quant)
    assert real.dtype == np.float64
    np.testing.assert_array_equal(real[1, :, 1], [0.5, 0.0, 2.0])
    np.testing.assert_array_equal(quantize(real, Storage(DType.I8, quant)), stored)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (Tensor("x", DType.I8, (2, 3), Quant((1.0, 1.0, 1.0), (0, 0, 0), 1)), None),
        (Tensor("x", DType.F32, (2,)), None),
        (Tensor("x", DType.F32, (2,), Quant.of(1.0)), "cannot stand for real numbers"),
        (Tensor("x", DType.I64, (2,), Quant.of(1.0)), "cannot stand for real numbers"),
        (Tensor("x", DType.I8, (2, 3), Quant((1.0,), (0,), 2)), "along axis 2 of 2"),
        (Tensor("x", DType.I8, (2, 3), Quant((1.0,), (0,), -1)), "along axis -1 of 2"),
        (
            Tensor("x", DType.I8, (2, 3), Quant((1.0, 1.0), (0, 0), 1)),
            "2 scales and 2 zero points, expected 3",
        ),
        (Tensor("x", DType.I8, (2,), Quant((1.0,), (0, 0))), "1 scales and 2 zero points, expected 1"),
        (Tensor("x", DType.I8, (2,), Quant.of(0.0)), "its scale is 0.0"),
        (Tensor("x", DType.I8, (2,), Quant.of(-1.0)), "its scale is -1.0"),
        (Tensor("x", DType.I8, (2,), Quant.of(np.inf)), "its scale is inf"),
        (Tensor("x", DType.I8, (2,), Quant.of(np.nan)), "its scale is nan"),
        (Tensor("x", DType.U8, (2,), Quant.of(1.0, -1)), "its zero point is no u8"),
        (Tensor("x", DType.I8, (2,), Quant.of(1.0, 128)), "its zero point is no i8"),
    ],
)
def test_faults_of_a_storage(tensor: Tensor, said: str | None) -> None:
    result = fault(tensor)
    assert result is None if said is None else said in (result or "")


def test_an_op_that_moves_keeps_the_storage() -> None:
    data = Tensor("x", DType.I8, (2, 3), I8.quant)
    other = Tensor("z", DType.I8, (2, 3), Quant.of(0.25))
    assert propagate_storage(OPS["Reshape"], [data], ReshapeAttributes((6,))) == I8
    assert propagate_storage(OPS["Concat"], [data, data], AxisAttributes(0)) == I8
    assert propagate_storage(OPS["Concat"], [data, other], AxisAttributes(0)) is None, (
        "two storages need a rounding"
    )
    assert propagate_storage(OPS["Relu"], [data], Attributes()) is None, "it computes"
    assert propagate_storage(OPS["Reshape"], [Tensor("x", DType.I8, (2,))], ReshapeAttributes((2,))) is None
    assert propagate_storage(OPS["Reshape"], [None], ReshapeAttributes((2,))) is None
    assert propagate_storage(OPS["Reshape"], [], ReshapeAttributes((2,))) is None


def test_the_axis_of_scales_follows_a_transpose_and_nothing_else() -> None:
    quant = Quant((1.0, 2.0, 3.0), (0, 0, 0), 1)
    data = Tensor("x", DType.I8, (2, 3, 4), quant)
    moved = propagate_storage(OPS["Transpose"], [data], TransposeAttributes((1, 2, 0)))
    assert moved is not None
    assert moved.quant.axis == 0
    assert moved.quant.scale == quant.scale
    assert propagate_storage(OPS["Reshape"], [data], ReshapeAttributes((24,))) is None


def test_a_transpose_keeps_stored_integers_and_rounds_only_for_another_storage() -> None:
    quant = Quant((0.1, 0.3), (5, 5), 0)
    data, elements = Tensor("x", DType.I8, (2, 3), quant), np.int8([[-128, 0, 127], [1, 2, 3]])
    attrs = TransposeAttributes((1, 0))
    for y in (
        Tensor("y", DType.I8, (3, 2), replace(quant, axis=1)),
        Tensor("y", DType.I8, (3, 2), Quant.of(0.3, 5)),
    ):
        (found,) = compute(OPS["Transpose"], attrs, [(data, elements)], [y])
        assert (found.dtype, found.shape) == (np.int8, (3, 2))
        if y.quant == Quant.of(0.3, 5):
            assert found[:, 0].tolist() == [round((value - 5) / 3) + 5 for value in (-128, 0, 127)]
        else:
            assert np.array_equal(found, elements.T)


def test_a_node_rounds_once() -> None:
    """0.3 + 0.3 is 0.6: two roundings of halves would give 1, one gives 0.5."""
    fine, coarse = Quant.of(0.1), Quant.of(0.5)
    x = Tensor("x", DType.I8, (1,), fine)
    y = Tensor("y", DType.I8, (1,), coarse)
    operands = [(x, np.int8([3])), (x, np.int8([3]))]
    (found,) = compute(OPS["Add"], Attributes(), operands, [y])
    assert found.tolist() == [1]
    assert found.dtype == np.int8


def test_an_absent_operand_stays_absent() -> None:
    attrs = OPS["Conv"].complete(
        {"strides": (1,), "pads_before": (0,), "pads_after": (0,), "dilations": (1,)}
    )
    x, w = Tensor("x", DType.F32, (1, 2, 1)), Tensor("w", DType.F32, (1, 1, 1))
    arrays = np.float32([[[1], [2]]]), np.float32([[[3]]])
    (found,) = compute(
        OPS["Conv"], attrs, [(x, arrays[0]), (w, arrays[1]), None], [Tensor("y", DType.F32, (1, 2, 1))]
    )
    assert found.ravel().tolist() == [3, 6]
