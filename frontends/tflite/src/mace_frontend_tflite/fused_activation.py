"""Activation functions that are fused into another operator."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.ir import Storage

_Type = tflite.ActivationFunctionType
LIMITS: Mapping[int, tuple[float, float]] = MappingProxyType(
    {
        _Type.NONE: (-inf, inf),
        _Type.RELU: (0.0, inf),
        _Type.RELU6: (0.0, 6.0),
        _Type.RELU_N1_TO_1: (-1.0, 1.0),
    }
)
FUSED: Mapping[int, str] = MappingProxyType({_Type.TANH: "Tanh"})


def limits(function: int) -> tuple[float, float] | None:
    """Between what a fused activation clamps; None for one that does more."""
    return LIMITS.get(function)


def is_within(storage: Storage | None, low: float, high: float) -> bool:
    """Whether what is stored so can be nothing outside the limits."""
    if low == -np.inf and high == np.inf:
        return True
    if storage is None or storage.quant.axis is not None:
        return False
    ends, (scale,), (zero,) = np.iinfo(storage.dtype.numpy), storage.quant.scale, storage.quant.zero_point
    return bool(
        (ends.min - zero) * scale >= low - scale / 2 and (ends.max - zero) * scale <= high + scale / 2
    )
