"""Ops that weigh the elements along one axis against each other: Softmax, LogSoftmax, Hardmax, LpNorm."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, move_axis, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"its input is of type {x.dtype.value}; it must be a float type")
    axis = attrs["axis"]
    assert isinstance(axis, int)
    axis_of(axis, len(x.shape))
    return [(x.dtype, x.shape)]


def _infer_lp(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    need(attrs["p"] in (1, 2), f"p is {attrs['p']!r}; it must be 1 or 2")
    return _infer(inputs, attrs)


def _shifted(x: Array, axis: int) -> Array:
    """Subtract the maximum, in double precision: no exponential of one overflows."""
    wide = x.astype(np.float64)
    return np.asarray(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(_shifted(x, axis))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax(x: Array, axis: int) -> Array:
    wide = _shifted(x, axis)
    return np.asarray(wide - np.log(np.sum(np.exp(wide), axis=axis, keepdims=True))).astype(x.dtype)


def _hardmax(x: Array, axis: int) -> Array:
    """One where the first of the largest elements is, else zero."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(np.argmax(x, axis=axis), axis), x.dtype.type(1), axis)
    return y


def _lp_norm(x: Array, axis: int, p: int) -> Array:
    """Divide the elements by their norm; zero where the norm is zero."""
    wide = x.astype(np.float64)
    norm = np.sum(np.abs(wide) ** p, axis=axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, wide / norm).astype(x.dtype)


OPS = (
    Op("Softmax", ("x",), ("y",), _infer, _softmax, {"axis": -1}, move=move_axis),
    Op("LogSoftmax", ("x",), ("y",), _infer, _log_softmax, {"axis": -1}, move=move_axis),
    Op("Hardmax", ("x",), ("y",), _infer, _hardmax, {"axis": -1}, move=move_axis),
    Op("LpNorm", ("x",), ("y",), _infer_lp, _lp_norm, {"axis": -1, "p": 2}, move=move_axis),
)
