"""Activation functions that are fused into another operator."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.ir import Storage

_Type = tflite.ActivationFunctionType
CLAMPS: Mapping[int, tuple[float, float]] = MappingProxyType(
    {
        _Type.NONE: (-inf, inf),
        _Type.RELU: (0.0, inf),
        _Type.RELU6: (0.0, 6.0),
        _Type.RELU_N1_TO_1: (-1.0, 1.0),
    }
)
"""Functions that clamp -> their bounds."""

FUNCTIONS: Mapping[int, str] = MappingProxyType({_Type.TANH: "Tanh"})
"""Functions that do not clamp -> the op of the IR."""


def clamp_bounds(function: int) -> tuple[float, float] | None:
    """Return the bounds between which a fused activation clamps; None for one that does more."""
    return CLAMPS.get(function)


def is_within(storage: Storage | None, low: float, high: float) -> bool:
    """Tell whether all numbers that can be stored so lie between the bounds: then a clamp changes nothing."""
    if low == -np.inf and high == np.inf:
        return True
    if storage is None or storage.quant.axis is not None:
        return False
    integers, (scale,), (zero,) = np.iinfo(storage.dtype.numpy), storage.quant.scale, storage.quant.zero_point
    # Half a step of tolerance: converters choose a scale of 6/255 for ReLU6, whose ends are not exactly 0 and
    # 6, and LiteRT rounds the bounds themselves to the nearest step (CalculateActivationRangeQuantized).
    reaches_low = (integers.min - zero) * scale >= low - scale / 2
    reaches_high = (integers.max - zero) * scale <= high + scale / 2
    return bool(reaches_low and reaches_high)
