"""Gather, GatherElements and GatherND: elements at positions that are known only at run time.

A negative index counts from the end; one outside the axis means its nearest element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, move_axis, need, need_indices, present


@dataclass(frozen=True)
class GatherAttributes(AxisAttributes):
    """axis: the axis that the indices count along."""

    axis: int = 0


@dataclass(frozen=True)
class GatherNDAttributes(Attributes):
    """batch_dims: number of first axes that data and indices share."""

    batch_dims: int = 0


def positions(indices: Array, count: int | Array) -> Array:
    """Return indices as positions in 0 ... count - 1."""
    if indices.dtype == np.uint64:
        # Beyond int64 lies the end of every axis; a cast alone would wrap to a negative index.
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    # Formats leave an index outside of the axis undefined. It is clamped, as in XLA, because a library must
    # never read outside of a tensor, whatever an input holds.
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + count, wide), 0, count - 1)


def _infer_gather(inputs: Inputs, attrs: GatherAttributes) -> list[Spec]:
    data, indices = present(inputs)
    need_indices(indices, "indices")
    axis = axis_of(attrs.axis, len(data.shape))
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    need(data.shape[axis] > 0 or math.prod(shape) == 0, f"axis {axis} has no elements to gather")
    return [(data.dtype, shape)]


def _gather(data: Array, indices: Array, attrs: GatherAttributes) -> Array:
    axis = attrs.axis
    if data.shape[axis] == 0:
        # numpy.take refuses an empty axis even where there is nothing to take.
        axis %= data.ndim
        return np.empty((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    return np.take(data, positions(indices, data.shape[axis]), axis)


def _infer_elements(inputs: Inputs, attrs: GatherAttributes) -> list[Spec]:
    data, indices = present(inputs)
    need_indices(indices, "indices")
    axis = axis_of(attrs.axis, len(data.shape))
    need(
        len(indices.shape) == len(data.shape),
        f"indices have rank {len(indices.shape)}, data has {len(data.shape)}",
    )
    fits = all(i <= d for n, (i, d) in enumerate(zip(indices.shape, data.shape, strict=True)) if n != axis)
    need(fits, f"indices {list(indices.shape)} do not fit into data {list(data.shape)} beside axis {axis}")
    need(data.shape[axis] > 0 or indices.elements == 0, f"axis {axis} has no elements to gather")
    return [(data.dtype, indices.shape)]


def _gather_elements(data: Array, indices: Array, attrs: GatherAttributes) -> Array:
    if indices.size == 0:
        return np.empty(indices.shape, data.dtype)
    axis = attrs.axis % data.ndim
    # take_along_axis wants the other axes to have the indices' lengths; ONNX allows data to be longer there.
    data = data[tuple(slice(None) if n == axis else slice(d) for n, d in enumerate(indices.shape))]
    return np.take_along_axis(data, positions(indices, data.shape[axis]), axis)


def _infer_nd(inputs: Inputs, attrs: GatherNDAttributes) -> list[Spec]:
    data, indices = present(inputs)
    need_indices(indices, "indices")
    batch = attrs.batch_dims
    need(len(indices.shape) > 0, "indices are a scalar; their last axis must hold the coordinates")
    max_dims = min(len(indices.shape) - 1, len(data.shape))
    need(0 <= batch <= max_dims, f"batch_dims is {batch}; it must be 0 to {max_dims}")
    depth = indices.shape[-1]
    need(
        batch + depth <= len(data.shape),
        f"{depth} coordinates after {batch} batch axes for data of rank {len(data.shape)}",
    )
    need(
        indices.shape[:batch] == data.shape[:batch],
        f"batch axes of indices are {list(indices.shape[:batch])}, of data {list(data.shape[:batch])}",
    )
    shape = (*indices.shape[:-1], *data.shape[batch + depth :])
    empty = 0 in data.shape[batch : batch + depth]
    need(not empty or math.prod(shape) == 0, f"data {list(data.shape)} has no elements to gather")
    return [(data.dtype, shape)]


def _gather_nd(data: Array, indices: Array, attrs: GatherNDAttributes) -> Array:
    batch_dims = attrs.batch_dims
    depth, lead = indices.shape[-1], indices.shape[:-1]
    indexed = data.shape[batch_dims : batch_dims + depth]
    shape = (*lead, *data.shape[batch_dims + depth :])
    if math.prod(shape) == 0:
        return np.empty(shape, data.dtype)
    coordinates = positions(indices, np.array(indexed, np.int64))
    batch = np.ix_(*(np.arange(d) for d in lead[:batch_dims]))
    rest = (1,) * (len(lead) - batch_dims)
    key = (*(b.reshape(*b.shape, *rest) for b in batch), *np.moveaxis(coordinates, -1, 0))
    return data[key] if key else np.broadcast_to(data, shape)


OPS = (
    Op("Gather", ("data", "indices"), ("y",), _infer_gather, _gather, GatherAttributes, moves=True),
    Op(
        "GatherElements",
        ("data", "indices"),
        ("y",),
        _infer_elements,
        _gather_elements,
        GatherAttributes,
        move=move_axis,
        moves=True,
    ),
    Op("GatherND", ("data", "indices"), ("y",), _infer_nd, _gather_nd, GatherNDAttributes, moves=True),
)
