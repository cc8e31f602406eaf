"""MapValues: look up each element among keys and return the value of its key, or a default."""

from __future__ import annotations

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    x, keys, values, default = present(inputs)
    need(keys.dtype is x.dtype, f"keys are of type {keys.dtype.value}; they must be {x.dtype.value}, as x is")
    need(
        default.dtype is values.dtype,
        f"the default is of type {default.dtype.value}; it must be {values.dtype.value}, as the values are",
    )
    need(
        len(keys.shape) == 1 and keys.shape == values.shape,
        f"{list(keys.shape)} keys and {list(values.shape)} values",
    )
    need(default.elements == 1, "the default is more than one number")
    return [(values.dtype, x.shape)]


def _map(x: Array, keys: Array, values: Array, default: Array) -> Array:
    """Look x up by binary search.  keys: ascending, each once, a NaN last."""
    if not len(keys):
        return np.full(x.shape, default.reshape(()), values.dtype)
    positions = np.minimum(np.searchsorted(keys, x), len(keys) - 1)
    is_key = keys[positions] == x
    if x.dtype.kind == "f":
        # NaN equals nothing, but models have it as a key: that of missing values.
        is_key |= np.isnan(x) & np.isnan(keys[positions])
    return np.asarray(np.where(is_key, values[positions], default.reshape(())))


OPS = (Op("MapValues", ("x", "keys", "values", "default"), ("y",), _infer, _map),)
