"""Cast: the same values in another element type."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Attrs, DType
from mace_core.ops.op import REQUIRED, Op, OpError, Spec
from mace_core.ops.shapes import Inputs, keep, present


def _cast(x: Array, to: str) -> Array:
    """Floats lose their fraction towards zero; any number but 0 is true."""
    return x != 0 if to == "bool" else np.asarray(x).astype(DType(to).numpy)


def _infer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    try:
        return [(DType(attrs["to"]), x.shape)]
    except ValueError:
        raise OpError(f"to is {attrs['to']!r}; it is one of {', '.join(t.value for t in DType)}") from None


OPS = (Op("Cast", ("x",), ("y",), _infer, _cast, {"to": REQUIRED}, move=keep),)
