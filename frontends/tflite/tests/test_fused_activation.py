"""Which activations clamp, and where a clamp changes nothing."""

from __future__ import annotations

from math import inf

import pytest
import tflite

from mace_core.ir import DType, Quant, Storage
from mace_frontend_tflite.fused_activation import FUNCTIONS, clamp_bounds, is_within

TYPE = tflite.ActivationFunctionType
STORED = Storage(DType.I8, Quant.of(0.5, -28))
"""From -50 to 77.5 in steps of 0.5."""


@pytest.mark.parametrize(
    ("function", "bounds"),
    [
        (TYPE.NONE, (-inf, inf)),
        (TYPE.RELU, (0, inf)),
        (TYPE.RELU6, (0, 6)),
        (TYPE.RELU_N1_TO_1, (-1, 1)),
        (TYPE.TANH, None),
        (TYPE.SIGN_BIT, None),
    ],
)
def test_bounds(function: int, bounds: tuple[float, float] | None) -> None:
    assert clamp_bounds(function) == bounds
    assert (function in FUNCTIONS) == (function == TYPE.TANH)


@pytest.mark.parametrize(
    ("low", "high", "within"),
    [
        (-50, 77.5, True),
        (-49.75, 77.5, True),
        (-49.7, 77.5, False),
        (-49.3, 77.5, False),
        (-50, 77.25, True),
        (-50, 77.2, False),
        (-50, 76.8, False),
        (-inf, 77.5, True),
        (-50, inf, True),
        (-inf, 70, False),
        (0, inf, False),
        (-inf, inf, True),
    ],
)
def test_clamp_within_half_a_step_of_the_ends_changes_nothing(low: float, high: float, within: bool) -> None:
    assert is_within(STORED, low, high) is within


@pytest.mark.parametrize("storage", [None, Storage(DType.I8, Quant((0.5, 0.5), (-28, -28), 0))])
def test_clamp_of_floats_and_of_several_scales_changes_something(storage: Storage | None) -> None:
    assert not is_within(storage, -1000, 1000)
    assert not is_within(storage, -inf, 1000)
    assert not is_within(storage, -1000, inf)
    assert is_within(storage, -inf, inf)
