"""Powers of two: the only scales that the accelerator knows, because all it does after a sum is to shift."""

from __future__ import annotations

import math

from mace_core.ir import DType, Quant, Storage, Tensor


def exponent(quant: Quant | None) -> int | None:
    """The k of a storage whose one scale is 2 ** k and whose zero point is 0; None for any other."""
    if quant is None or len(set(quant.scale)) != 1 or any(quant.zero_point):
        return None
    mantissa, power = math.frexp(quant.scale[0])
    return power - 1 if mantissa == 0.5 else None


def storage(power: int) -> Storage:
    """Signed bytes that count steps of 2 ** power."""
    return Storage(DType.I8, Quant.of(2.0**power))


def is_native(tensor: Tensor) -> bool:
    """Whether a tensor is stored as the accelerator stores data."""
    return tensor.dtype is DType.I8 and exponent(tensor.quant) is not None
