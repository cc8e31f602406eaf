"""Cast: the same values in another element type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, OpError, Spec
from mace_core.ops.shapes import Inputs, keep, present


@dataclass(frozen=True)
class CastAttributes(Attributes):
    """to: the value of a `DType`."""

    to: str

    @property
    def dtype(self) -> DType:
        """The type of the result; raises OpError if no type has that name."""
        try:
            return DType(self.to)
        except ValueError:
            names = ", ".join(t.value for t in DType)
            raise OpError(f"to is {self.to!r}; it is one of {names}") from None


def convert(x: Array, dtype: DType) -> Array:
    """Convert elements to another type; every number except 0 becomes true.

    Floats lose their fraction towards zero. Floats outside of an integer type saturate, and NaN becomes 0.
    Integers wider than their new type keep their low bits, as in all frameworks.
    """
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    x = np.asarray(x)
    if x.dtype.kind != "f" or dtype.is_float:
        return x.astype(dtype.numpy)
    # File formats leave out-of-range floats undefined, and most frameworks give what the processor's
    # conversion happens to give. Saturation is what ARM and XLA do, so that results do not depend on the
    # processor; docs/operators.md names the frameworks that agree.
    limits = np.iinfo(dtype.numpy)
    wide = np.trunc(x.astype(np.float64))
    # The largest 64-bit integers are no floats, so float(limits.max) is the power of two above them: a number
    # that reaches it does not fit, hence >= and not >.
    below, above = wide <= float(limits.min), wide >= float(limits.max)
    fits = ~(below | above | np.isnan(wide))
    converted = np.where(fits, wide, 0).astype(dtype.numpy)
    return np.asarray(np.where(above, limits.max, np.where(below, limits.min, converted)).astype(dtype.numpy))


def _cast(x: Array, attrs: CastAttributes) -> Array:
    return convert(x, attrs.dtype)


def _infer(inputs: Inputs, attrs: CastAttributes) -> list[Spec]:
    (x,) = present(inputs)
    return [(attrs.dtype, x.shape)]


OPS = (Op("Cast", ("x",), ("y",), _infer, _cast, CastAttributes, move=keep),)
