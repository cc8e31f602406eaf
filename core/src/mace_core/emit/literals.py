"""Numbers and tensors as C writes them."""

from __future__ import annotations

import math

import numpy as np

from mace_core.emit.text import Code, CString
from mace_core.ir import MAX_RANK, Tensor
from mace_core.program import FIELD_TYPES, Arg


def write_literal(value: Arg, ctype: str) -> Code:
    """A number, or a braced list of them, as C writes it; floats exactly."""
    if isinstance(value, tuple):
        base = ctype.partition("[")[0]
        return Code("{" + ", ".join(write_literal(v, base) for v in value) + "}")
    if FIELD_TYPES[ctype] not in ("float", "double"):
        # -9223372036854775808 is the negative of a number that no signed type holds.
        return Code("INT64_MIN" if int(value) == -(1 << 63) else int(value))
    is_single = FIELD_TYPES[ctype] == "float"
    with np.errstate(over="ignore"):  # a double beyond the range of single precision is infinite there
        number = float(np.float32(value)) if is_single else float(value)
    if math.isnan(number):
        return Code("NAN")
    if math.isinf(number):
        return Code("INFINITY" if number > 0 else "-INFINITY")
    return Code(number.hex() + "f" * is_single)


def describe_tensor(tensor: Tensor) -> Code:
    """Write a `mace_tensor`."""
    axes = tensor.shape
    if len(axes) > MAX_RANK:  # only of a layer: for observers its leading axes are one
        axes = (math.prod(axes[: 1 - MAX_RANK]), *axes[1 - MAX_RANK :])
    shape = ", ".join(map(str, axes)) or "0"
    quant = tensor.quant
    scale, zero = (quant.scale[0], quant.zero_point[0]) if quant and quant.axis is None else (0.0, 0)
    head = f"{CString(tensor.name)}, MACE_{tensor.dtype.name}, {len(axes)}"
    return Code(f"{{{head}, {{{shape}}}, {tensor.bytes}, {write_literal(scale, 'f32')}, {zero}}}")
