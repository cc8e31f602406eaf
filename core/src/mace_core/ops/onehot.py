"""OneHot: for each index a vector that is "on" there and "off" elsewhere."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs
from mace_core.ops.arguments import integer, need_indices
from mace_core.ops.op import REQUIRED, Op, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, present


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    indices, values = present(inputs)
    need_indices(indices, "indices")
    need(values.shape == (2,), f"values have shape {list(values.shape)}; they must be two, off and on")
    depth = integer(attrs, "depth")
    need(depth >= 0, f"depth is {depth}; it must not be negative")
    axis = axis_of(integer(attrs, "axis"), len(indices.shape) + 1)
    return [(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))]


def _onehot(indices: Array, values: Array, depth: int, axis: int) -> Array:
    """An index from -depth counts from the end; one outside is on nowhere."""
    classes = np.arange(depth).reshape(depth, *(1,) * indices.ndim)
    wide = indices.astype(np.float64)  # holds every index that can be near
    on = np.where(wide < 0, wide + depth, wide) == classes
    return np.asarray(np.where(np.moveaxis(on, 0, axis), values[1], values[0]))


OPS = (Op("OneHot", ("indices", "values"), ("y",), _infer, _onehot, {"depth": REQUIRED, "axis": -1}),)
