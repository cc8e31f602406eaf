"""Element-wise ops of one input with attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, keep, need, present, same
from mace_core.ops.unary import erf

A = TypeVar("A", bound=Attributes)


@dataclass(frozen=True)
class AlphaAttributes(Attributes):
    """alpha: the parameter of the function."""

    alpha: float = 1.0


@dataclass(frozen=True)
class SeluAttributes(Attributes):
    """The parameters of Selu; with the defaults, those of ONNX, activations keep mean 0 and variance 1."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


@dataclass(frozen=True)
class LeakyReluAttributes(AlphaAttributes):
    """alpha: the slope for negative numbers."""

    alpha: float = 0.01


@dataclass(frozen=True)
class HardSigmoidAttributes(Attributes):
    """The line alpha * x + beta, which is clamped to 0 ... 1."""

    alpha: float = 0.2
    beta: float = 0.5


@dataclass(frozen=True)
class ShrinkAttributes(Attributes):
    """lambd: magnitudes up to it become 0.  bias: subtracted from the other magnitudes."""

    bias: float = 0.0
    lambd: float = 0.5


@dataclass(frozen=True)
class GeluAttributes(Attributes):
    """approximate: "tanh" for the approximation by a hyperbolic tangent."""

    approximate: Literal["none", "tanh"] = "none"


@dataclass(frozen=True)
class ClipAttributes(Attributes):
    """Bounds of the results; integer bounds stay exact, which elements of 64 bits need."""

    min: int | float = -math.inf
    max: int | float = math.inf

    def integer_bounds(self, dtype: DType) -> tuple[int, int]:
        """Return the bounds as integers of a type: cut towards zero, and saturated where it cannot hold them.

        Compared with floats, integers of 64 bits would lose their low bits.
        """
        limits = np.iinfo(dtype.numpy)
        low, high = int(limits.min), int(limits.max)
        return _cut_bound(self.min, low, high), _cut_bound(self.max, low, high)


@dataclass(frozen=True)
class IsInfAttributes(Attributes):
    """Which of the two infinities count."""

    negative: bool = True
    positive: bool = True


def _elu(x: Array, attrs: AlphaAttributes) -> Array:
    # np.where computes both sides: without the minimum, expm1 of a large x would overflow in vain.
    return np.where(x > 0, x, attrs.alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Array, attrs: AlphaAttributes) -> Array:
    return np.maximum(x, 0) + np.minimum(0, attrs.alpha * np.expm1(x / attrs.alpha))


def _selu(x: Array, attrs: SeluAttributes) -> Array:
    return attrs.gamma * _elu(x, AlphaAttributes(attrs.alpha))


def _leaky_relu(x: Array, attrs: AlphaAttributes) -> Array:
    return np.where(x >= 0, x, attrs.alpha * x)


def _thresholded_relu(x: Array, attrs: AlphaAttributes) -> Array:
    return np.where(x > attrs.alpha, x, 0)


def _hard_sigmoid(x: Array, attrs: HardSigmoidAttributes) -> Array:
    return np.clip(attrs.alpha * x + attrs.beta, 0, 1)


def _swish(x: Array, attrs: AlphaAttributes) -> Array:
    return np.asarray(x / (1 + np.exp(-attrs.alpha * x)))


def _gelu(x: Array, attrs: GeluAttributes) -> Array:
    """Compute x * P(X <= x) of a normal X (D. Hendrycks, K. Gimpel, arXiv:1606.08415)."""
    if attrs.approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def _shrink(x: Array, attrs: ShrinkAttributes) -> Array:
    return np.where(x < -attrs.lambd, x + attrs.bias, np.where(x > attrs.lambd, x - attrs.bias, 0))


def _is_inf(x: Array, attrs: IsInfAttributes) -> Array:
    return (np.isposinf(x) & attrs.positive) | (np.isneginf(x) & attrs.negative)


def _clip(x: Array, attrs: ClipAttributes) -> Array:
    low, high = (attrs.min, attrs.max) if x.dtype.kind == "f" else attrs.integer_bounds(DType.of(x))
    # The maximum first: where min is above max the result is max, as ONNX defines it.
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


def _cut_bound(bound: int | float, low: int, high: int) -> int:
    # Compared before it is cut, because infinity is no integer; Python compares the two kinds exactly.
    if bound <= low:
        return low
    return high if bound >= high else int(bound)


def _floats(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    need(
        present(inputs)[0].dtype.is_float,
        f"its input is {present(inputs)[0].dtype.value}; it must be a float",
    )
    return same(inputs, attrs)


def _infer_is_inf(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, "its input must be a float")
    return [(DType.BOOL, x.shape)]


def _infer_clip(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype is not DType.BOOL, "its input must be numbers")
    return same(inputs, attrs)


def _op(name: str, function: Callable[[Array, A], Array], kind: type[A]) -> Op[A]:
    """Make an op of floats that computes a function in double precision and rounds once."""

    def reference(x: Array, attrs: A) -> Array:
        return np.asarray(function(x.astype(np.float64), attrs)).astype(x.dtype)

    return Op(name, ("x",), ("y",), _floats, reference, kind, move=keep)


OPS = (
    _op("Elu", _elu, AlphaAttributes),
    _op("Celu", _celu, AlphaAttributes),
    _op("Selu", _selu, SeluAttributes),
    _op("LeakyRelu", _leaky_relu, LeakyReluAttributes),
    _op("ThresholdedRelu", _thresholded_relu, AlphaAttributes),
    _op("HardSigmoid", _hard_sigmoid, HardSigmoidAttributes),
    _op("Swish", _swish, AlphaAttributes),
    _op("Shrink", _shrink, ShrinkAttributes),
    _op("Gelu", _gelu, GeluAttributes),
    Op("Clip", ("x",), ("y",), _infer_clip, _clip, ClipAttributes, move=keep),
    Op("IsInf", ("x",), ("y",), _infer_is_inf, _is_inf, IsInfAttributes, move=keep),
)
