"""OneHot: turn each index into a vector with the value "on" at the index and "off" elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, need_indices, present


@dataclass(frozen=True)
class OneHotAttributes(Attributes):
    """depth: length of a vector.  axis: the axis of the result that the vectors lie along."""

    depth: int
    axis: int = -1


def _infer(inputs: Inputs, attrs: OneHotAttributes) -> list[Spec]:
    indices, values = present(inputs)
    need_indices(indices, "indices")
    need(values.shape == (2,), f"values have shape {list(values.shape)}; they must be two, off and on")
    depth = attrs.depth
    need(depth >= 0, f"depth is {depth}; it must not be negative")
    axis = axis_of(attrs.axis, len(indices.shape) + 1)
    return [(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))]


def _onehot(indices: Array, values: Array, attrs: OneHotAttributes) -> Array:
    """Compare every index with every position; one outside of -depth ... depth - 1 matches none."""
    depth = attrs.depth
    classes = np.arange(depth).reshape(depth, *(1,) * indices.ndim)
    # Doubles hold indices of every integer type, uint64 too; those that they round are far outside anyway.
    wide = indices.astype(np.float64)
    on = np.where(wide < 0, wide + depth, wide) == classes
    return np.asarray(np.where(np.moveaxis(on, 0, attrs.axis), values[1], values[0]))


OPS = (Op("OneHot", ("indices", "values"), ("y",), _infer, _onehot, OneHotAttributes),)
