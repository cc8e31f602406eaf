"""Ops that relate the elements along one axis to each other: Softmax, LogSoftmax, Hardmax, LpNorm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, present


@dataclass(frozen=True)
class SoftmaxAttributes(AxisAttributes):
    """axis: the axis that is normalized."""

    axis: int = -1


@dataclass(frozen=True)
class LpNormAttributes(SoftmaxAttributes):
    """p: the power of the norm, 1 or 2."""

    p: int = 2


def _infer(inputs: Inputs, attrs: SoftmaxAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"its input is of type {x.dtype.value}; it must be a float type")
    axis_of(attrs.axis, len(x.shape))
    return [(x.dtype, x.shape)]


def _infer_lp(inputs: Inputs, attrs: LpNormAttributes) -> list[Spec]:
    need(attrs.p in (1, 2), f"p is {attrs.p}; it must be 1 or 2")
    return _infer(inputs, attrs)


def _subtract_max(x: Array, axis: int) -> Array:
    """Subtract the maximum along the axis, in double precision, so that no exponential overflows."""
    wide = x.astype(np.float64)
    # The initial value lets an axis without elements pass, whose maximum numpy refuses.
    return np.asarray(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))


def _softmax(x: Array, attrs: SoftmaxAttributes) -> Array:
    axis = attrs.axis
    e = np.exp(_subtract_max(x, axis))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax(x: Array, attrs: SoftmaxAttributes) -> Array:
    axis = attrs.axis
    wide = _subtract_max(x, axis)
    # Not log(softmax(x)), which is -inf where the softmax underflows.
    return np.asarray(wide - np.log(np.sum(np.exp(wide), axis=axis, keepdims=True))).astype(x.dtype)


def _hardmax(x: Array, attrs: SoftmaxAttributes) -> Array:
    """Write 1 where the first of the largest elements is, and 0 elsewhere."""
    axis = attrs.axis
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(np.argmax(x, axis=axis), axis), x.dtype.type(1), axis)
    return y


def _lp_norm(x: Array, attrs: LpNormAttributes) -> Array:
    """Divide the elements by their norm; the result is 0 where the norm is 0, as in ONNX."""
    axis, p = attrs.axis, attrs.p
    wide = x.astype(np.float64)
    norm = np.sum(np.abs(wide) ** p, axis=axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, wide / norm).astype(x.dtype)


OPS = (
    Op("Softmax", ("x",), ("y",), _infer, _softmax, SoftmaxAttributes, move=move_axis),
    Op("LogSoftmax", ("x",), ("y",), _infer, _log_softmax, SoftmaxAttributes, move=move_axis),
    Op("Hardmax", ("x",), ("y",), _infer, _hardmax, SoftmaxAttributes, move=move_axis),
    Op("LpNorm", ("x",), ("y",), _infer_lp, _lp_norm, LpNormAttributes, move=move_axis),
)
