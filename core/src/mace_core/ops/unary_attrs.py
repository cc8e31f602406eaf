"""Element-wise ops of one input with attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, keep, need, present, same
from mace_core.ops.unary import erf


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, alpha: float) -> Array:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return gamma * _elu(x, alpha)


def _gelu(x: Array, approximate: str) -> Array:
    """Hendrycks and Gimpel, arXiv:1606.08415."""
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def _shrink(x: Array, bias: float, lambd: float) -> Array:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _is_inf(x: Array, negative: bool, positive: bool) -> Array:
    return (np.isposinf(x) & positive) | (np.isneginf(x) & negative)


def _clip(x: Array, min: float, max: float) -> Array:  # noqa: A002  # the attributes' names
    if x.dtype.kind != "f":  # whole bounds, so that wide integers stay exact
        limits = np.iinfo(x.dtype)
        low = limits.min if min <= limits.min else int(min)
        high = limits.max if max >= limits.max else int(max)
        return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(min)), x.dtype.type(max)))


def _wide(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda x, **attrs: np.asarray(function(x.astype(np.float64), **attrs)).astype(x.dtype)


def _floats(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    need(
        present(inputs)[0].dtype.is_float,
        f"its input is {present(inputs)[0].dtype.value}; it must be a float",
    )
    return same(inputs, attrs)


def _infer_is_inf(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, "its input must be a float")
    return [(DType.BOOL, x.shape)]


def _infer_clip(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype is not DType.BOOL, "its input must be numbers")
    return same(inputs, attrs)


def _infer_gelu(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    need(
        attrs["approximate"] in ("none", "tanh"),
        f"approximate is {attrs['approximate']!r}; it is 'none' or 'tanh'",
    )
    return _floats(inputs, attrs)


TABLE: tuple[tuple[str, Callable[..., Array], Mapping[str, Any]], ...] = (
    ("Elu", _elu, {"alpha": 1.0}),
    ("Celu", _celu, {"alpha": 1.0}),
    ("Selu", _selu, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    ("LeakyRelu", lambda x, alpha: np.where(x >= 0, x, alpha * x), {"alpha": 0.01}),
    ("ThresholdedRelu", lambda x, alpha: np.where(x > alpha, x, 0), {"alpha": 1.0}),
    ("HardSigmoid", lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), {"alpha": 0.2, "beta": 0.5}),
    ("Swish", lambda x, alpha: x / (1 + np.exp(-alpha * x)), {"alpha": 1.0}),
    ("Shrink", _shrink, {"bias": 0.0, "lambd": 0.5}),
)

OPS = (
    *(
        Op(name, ("x",), ("y",), _floats, _wide(function), attrs, move=keep)
        for name, function, attrs in TABLE
    ),
    Op("Gelu", ("x",), ("y",), _infer_gelu, _wide(_gelu), {"approximate": "none"}, move=keep),
    Op("Clip", ("x",), ("y",), _infer_clip, _clip, {"min": -math.inf, "max": math.inf}, move=keep),
    Op("IsInf", ("x",), ("y",), _infer_is_inf, _is_inf, {"negative": True, "positive": True}, move=keep),
)
