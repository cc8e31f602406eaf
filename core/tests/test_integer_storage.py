"""Scales and constants of quantized tensors, and what integer kernels refuse of them."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.integer_storage import EIGHT_BITS, IntegerWeights, Scale, need_room, need_stored
from mace_core.ir import DType, Graph, Quant, Tensor
from mace_core.lowering import Lowering, Refused

PER_CHANNEL = Quant((0.5, 0.25), (0, 0), 0)


def build_lowering() -> Lowering:
    """Return a lowering with constants "signed", "unsigned" and "mixed", and an input "x"."""
    signed = np.array([[1, -2], [3, 4]], np.int8)
    weights = {"signed": signed, "unsigned": np.array([[0, 255], [128, 130]], np.uint8), "mixed": signed}
    quants = {"signed": PER_CHANNEL, "unsigned": Quant.of(0.5, 130), "mixed": Quant((0.5, 0.25), (0, 1), 0)}
    tensors = {"x": Tensor("x", DType.I8, (2, 2), Quant.of(0.1, 3))}
    for name, array in weights.items():
        tensors[name] = Tensor(name, DType.of(array), array.shape, quants[name])
    return Lowering(Graph("weights", (), tensors, weights, ("x",), ("x",)))


def test_floats_have_steps_of_one() -> None:
    assert Scale.from_tensor(Tensor("x", DType.F32, (2,))) == Scale(1.0, 0)
    assert Scale.from_tensor(Tensor("x", DType.I8, (2,), Quant.of(0.1, 3))) == Scale(0.1, 3)


def test_scales_along_an_axis_are_refused() -> None:
    with pytest.raises(Refused, match="a scale for every index of axis 0") as error:
        Scale.from_tensor(Tensor("w", DType.I8, (2, 2), PER_CHANNEL))
    assert error.value.refusal.code == "quantization"


def test_only_quantized_tensors_of_some_types_are_read() -> None:
    lowering = build_lowering()
    assert need_stored(lowering, "x", EIGHT_BITS).name == "x"
    with pytest.raises(Refused, match="x is i8, quantized; no integer kernel reads that"):
        need_stored(lowering, "x", (DType.I16,))


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (1 << 23, True), ((1 << 23) + 1, False)])
def test_sums_fit_thirty_two_bits(count: int, fits: bool) -> None:
    tensor = Tensor("x", DType.I8, (2,), Quant.of(0.1))
    if fits:
        need_room(tensor, count)
        return
    with pytest.raises(Refused, match="may not fit 32 bits"):
        need_room(tensor, count)


def test_weights_are_signed_bytes_with_sums_and_magnitudes() -> None:
    weights = IntegerWeights.from_constant("signed", build_lowering())
    assert (weights.zero, weights.scale.tolist()) == (0, [0.5, 0.25])
    assert (weights.sums((1,)).tolist(), weights.reach((1,)).tolist()) == ([-1, 7], [3, 7])


def test_unsigned_weights_are_shifted_with_their_zero_point() -> None:
    weights = IntegerWeights.from_constant("unsigned", build_lowering())
    assert (weights.values.tolist(), weights.zero) == ([[-128, 127], [0, 2]], 2)
    assert (weights.sums((1,)).tolist(), weights.reach((1,)).tolist()) == ([-5, -2], [255, 2])


@pytest.mark.parametrize(
    ("name", "reason"), [("x", "x is computed, not a constant"), ("mixed", "mixed has several zero points")]
)
def test_other_factors_are_refused(name: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        IntegerWeights.from_constant(name, build_lowering())


def test_totals_are_computed_once_and_nobody_writes_to_them() -> None:
    lowering = build_lowering()
    weights = IntegerWeights.from_constant("signed", lowering)
    assert IntegerWeights.from_constant("signed", lowering.fork()) is weights
    axes = tuple(range(1, weights.values.ndim))
    for total in (weights.sums, weights.reach):
        assert total(axes) is total(axes)
        with pytest.raises(ValueError, match="read-only"):
            total(axes)[0] = 1
