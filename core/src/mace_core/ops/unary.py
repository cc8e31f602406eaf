"""Element-wise ops of one input and no attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, keep, need, present, same


def _wide(function: Callable[[Any], Any]) -> Callable[[Array], Array]:
    """Compute a function of floats in double precision and round once."""
    # Rounded once, the reference is the nearest float to the exact result, as kernels' tolerances assume.
    return lambda x: np.asarray(function(x.astype(np.float64) if x.dtype.kind == "f" else x)).astype(x.dtype)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    # log(1 + exp(x)) without the overflow of exp for large x.
    return np.logaddexp(0, x)


def erf(x: Array) -> Array:
    """Compute the error function of each element with the C library, because numpy has none."""
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x


REFERENCES: Mapping[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Ceil": np.ceil,
    "Floor": np.floor,
    # Halves to even, as ONNX, TensorFlow and IEEE 754 define it; C's round takes them away from zero.
    "Round": np.rint,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Reciprocal": lambda x: 1 / x,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Tanh": np.tanh,
    "Sigmoid": _sigmoid,
    "Erf": erf,
    "Relu": lambda x: np.maximum(x, 0),
    # The constants of ONNX's operator; Keras and TFLite write the same function as x * relu6(x + 3) / 6.
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": _softplus,
}

SIGNED_TOO = ("Abs", "Neg", "Sign", "Relu")
"""Ops that take integers as well as floats."""


def _infer(name: str) -> Callable[[Inputs, Attributes], list[Spec]]:
    def infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
        (x,) = present(inputs)
        takes_it = x.dtype.is_float or (name in SIGNED_TOO and x.dtype is not DType.BOOL)
        need(takes_it, f"its input is {x.dtype.value}; it must be a float")
        return same(inputs, attrs)

    return infer


def _infer_not(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    need(present(inputs)[0].dtype is DType.BOOL, "its input must be bool")
    return same(inputs, attrs)


def _infer_bits(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    need(not present(inputs)[0].dtype.is_float, "its input must be an integer")
    return same(inputs, attrs)


def _infer_is_nan(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, "its input must be a float")
    return [(DType.BOOL, x.shape)]


OPS = (
    *(
        Op(name, ("x",), ("y",), _infer(name), _wide(function), move=keep)
        for name, function in REFERENCES.items()
    ),
    Op("Not", ("x",), ("y",), _infer_not, np.logical_not, move=keep),
    Op("BitwiseNot", ("x",), ("y",), _infer_bits, np.invert, move=keep),
    Op("IsNaN", ("x",), ("y",), _infer_is_nan, np.isnan, move=keep),
)
