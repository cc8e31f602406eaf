"""Cast: the same values in another element type."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops.op import REQUIRED, Op, OpError, Spec
from mace_core.ops.shapes import Inputs, keep, present


def convert(x: Array, dtype: DType) -> Array:
    """Elements in another type; any number but 0 is true.

    Floats lose their fraction towards zero; those that an integer type does not hold become its nearest
    number, NaN becomes 0. File formats leave these undefined, and most frameworks give what the processor's
    conversion happens to give; docs/operators.md names those that compute them so. Wide integers keep their
    low bits, as in all of them.
    """
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    x = np.asarray(x)
    if x.dtype.kind != "f" or dtype.is_float:
        return x.astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    wide = np.trunc(x.astype(np.float64))
    # The greatest 64-bit integers are no floats: what reaches the power of two above them does not fit.
    below, above = wide <= float(limits.min), wide >= float(limits.max)
    fits = ~(below | above | np.isnan(wide))
    made = np.where(fits, wide, 0).astype(dtype.numpy)
    return np.asarray(np.where(above, limits.max, np.where(below, limits.min, made)).astype(dtype.numpy))


def _cast(x: Array, to: str) -> Array:
    return convert(x, DType(to))


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    try:
        return [(DType(attrs["to"]), x.shape)]
    except ValueError:
        raise OpError(f"to is {attrs['to']!r}; it is one of {', '.join(t.value for t in DType)}") from None


OPS = (Op("Cast", ("x",), ("y",), _infer, _cast, {"to": REQUIRED}, move=keep),)
