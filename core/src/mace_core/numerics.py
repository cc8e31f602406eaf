"""The rules by which the numbers of a model are rounded: the key `numerics` of a deployment file."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

KEY = "numerics"


class Numerics(Enum):
    """How the nodes of a model round; the values are those of the key.

    SINGLE_ROUNDING: the exact result of a quantized node is multiplied in single precision, and rounded once.
    FIXED_POINT: a quantized node computes, bit for bit, what the plain kernels of the interpreter compute
    that the key names: most by a multiplier of 31 bits and a shift.
    REPRODUCIBLE: as SINGLE_ROUNDING, and floats have the same bits at every level and on every processor:
    each product and each sum is rounded, in an order that is the same everywhere.
    """

    SINGLE_ROUNDING = "single-rounding"
    FIXED_POINT = "tflite-reference"
    REPRODUCIBLE = "reproducible"


def read_numerics(keys: Mapping[str, object]) -> Numerics:
    """Return the rule that the keys of a model state."""
    return Numerics(keys.get(KEY, Numerics.SINGLE_ROUNDING.value))
