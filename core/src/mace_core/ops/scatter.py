"""ScatterElements and ScatterND: replace some elements of a tensor, or combine them with others, in order.

A negative index counts from the end; one outside the axis means its nearest element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Tensor
from mace_core.ops.gather import positions
from mace_core.ops.op import Op, OpError, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, need_indices, present

Reduction = Literal["none", "add", "mul", "max", "min"]

UFUNCS: Mapping[Reduction, np.ufunc] = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
)
"""Functions that combine an element with its update; "none" replaces it."""


@dataclass(frozen=True)
class ScatterElementsAttributes(AxisAttributes):
    """axis: the axis that the indices count along."""

    axis: int = 0
    reduction: Reduction = "none"


@dataclass(frozen=True)
class ScatterNDAttributes(Attributes):
    """reduction: how an element is combined with its update."""

    reduction: Reduction = "none"


def _check_operands(inputs: Inputs, reduction: Reduction) -> tuple[Tensor, Tensor, Tensor]:
    """Return data, indices and updates; raises OpError unless their types fit."""
    data, indices, updates = present(inputs)
    need_indices(indices, "indices")
    if data.dtype is not updates.dtype:
        raise OpError(
            f"data are of type {data.dtype.value}, updates of {updates.dtype.value}; they must be the same"
        )
    need(reduction == "none" or data.dtype is not DType.BOOL, f"reduction {reduction!r} takes no booleans")
    return data, indices, updates


def _infer_elements(inputs: Inputs, attrs: ScatterElementsAttributes) -> list[Spec]:
    data, indices, updates = _check_operands(inputs, attrs.reduction)
    axis = axis_of(attrs.axis, len(data.shape))
    need(indices.shape == updates.shape, f"indices are {list(indices.shape)}, updates {list(updates.shape)}")
    need(
        len(indices.shape) == len(data.shape),
        f"indices have rank {len(indices.shape)}, data has {len(data.shape)}",
    )
    fits = all(i <= d for n, (i, d) in enumerate(zip(indices.shape, data.shape, strict=True)) if n != axis)
    need(fits, f"indices {list(indices.shape)} do not fit into data {list(data.shape)} beside axis {axis}")
    need(data.shape[axis] > 0 or indices.elements == 0, f"axis {axis} has no elements to replace")
    return [(data.dtype, data.shape)]


def _infer_nd(inputs: Inputs, attrs: ScatterNDAttributes) -> list[Spec]:
    data, indices, updates = _check_operands(inputs, attrs.reduction)
    need(len(indices.shape) > 0, "indices are a scalar; their last axis must hold the coordinates")
    depth = indices.shape[-1]
    need(depth <= len(data.shape), f"{depth} coordinates for data of rank {len(data.shape)}")
    expected = (*indices.shape[:-1], *data.shape[depth:])
    need(updates.shape == expected, f"updates are {list(updates.shape)}; they must be {list(expected)}")
    need(
        0 not in data.shape[:depth] or updates.elements == 0,
        f"data {list(data.shape)} has no elements to replace",
    )
    return [(data.dtype, data.shape)]


def _put(data: Array, key: tuple[Array, ...], updates: Array, reduction: Reduction) -> Array:
    """Copy data and apply the updates at `key`, one after another."""
    y = data.copy()
    if reduction != "none":
        UFUNCS[reduction].at(y, key, updates)
        return y
    indexed = data.shape[: len(key)]
    flat = np.ravel_multi_index(key, indexed)
    rows = y.reshape(math.prod(indexed), -1)
    # One at a time, so that the last update of an element wins: numpy leaves open which of two assignments to
    # one element does.
    for row, update in zip(flat.reshape(-1), updates.reshape(flat.size, -1), strict=True):
        rows[row] = update
    return y


def _scatter_elements(data: Array, indices: Array, updates: Array, attrs: ScatterElementsAttributes) -> Array:
    if indices.size == 0:
        return data
    axis = attrs.axis
    key: list[Array] = [np.asarray(coordinate) for coordinate in np.indices(indices.shape)]
    key[axis] = positions(indices, data.shape[axis])
    return _put(data, tuple(key), updates, attrs.reduction)


def _scatter_nd(data: Array, indices: Array, updates: Array, attrs: ScatterNDAttributes) -> Array:
    if updates.size == 0:
        return data
    depth = indices.shape[-1]
    rows = updates.reshape(-1, *data.shape[depth:])
    if depth == 0:
        return _combine_all(data, rows, attrs.reduction)
    coordinates = positions(indices, np.array(data.shape[:depth], np.int64)).reshape(-1, depth)
    return _put(data, tuple(coordinates.T), rows, attrs.reduction)


def _combine_all(data: Array, updates: Array, reduction: Reduction) -> Array:
    """Apply updates without coordinates, each to all of data."""
    for update in updates:
        data = update if reduction == "none" else np.asarray(UFUNCS[reduction](data, update))
    return data


_INPUTS = ("data", "indices", "updates")
OPS = (
    Op(
        "ScatterElements",
        _INPUTS,
        ("y",),
        _infer_elements,
        _scatter_elements,
        ScatterElementsAttributes,
        move=move_axis,
    ),
    Op("ScatterND", _INPUTS, ("y",), _infer_nd, _scatter_nd, ScatterNDAttributes),
)
