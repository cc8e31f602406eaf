"""Proves of packed weights that 3 x 3 convolutions by tiles of 4 x 4 results are exact in integers.

winograd_words.h.in computes in words of 16 bits and in sums modulo 2^32. A result comes out as 576 times
itself, or divided by a power of two; the product with the inverse of 9 modulo 2^32 leaves 64 times itself at
most, and a shift to the right the result, if 26 bits hold it.
"""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array
from mace_core.lowering import Refused

ACTIVATIONS = 255
WORD_BITS, PAIR_BITS = 16, 32
"""Of data and weights at their places, and of the sum of two products, by one instruction."""

RESULT_BITS = 26
"""What 32 bits leave of a result that is multiplied by 64."""

DATA = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, 4, 4, -1, -1, 0],
        [0, -4, 4, 1, -1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
WEIGHTS = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
"""What winograd_words.h.in multiplies data and weights by, from both sides."""


def bound_words(matrix: Array, reach: int) -> int:
    """Return the largest magnitude at a place, of elements with magnitudes up to `reach`."""
    return int(np.abs(np.kron(matrix, matrix)).sum(1).max()) * reach


def check_winograd(packed: Array, zero: int, columns: int, *, is_signed: bool = False) -> tuple[int, int]:
    """Return the bounds of the sums of a convolution; Refused if a step has too few bits.

    packed: the weights as the kernel reads them, int8 [1, panels, quads, columns of a panel, 4].  zero: their
    zero point.  columns: those that are stored.  is_signed: whether kernels multiply bytes from -128 to 127,
    and not from 0 to 255.
    """
    weights = packed[0].astype(np.int32) - zero
    words = bound_words(DATA, ACTIVATIONS), bound_words(WEIGHTS, int(np.abs(weights).max(initial=0)))
    if max(words) >= 1 << (WORD_BITS - 1) or 2 * words[0] * words[1] >= 1 << (PAIR_BITS - 1):
        raise Refused(f"its data and weights reach {words}, which words do not hold", code="too-large")
    positive = np.maximum(weights, 0).sum((1, 3), dtype=np.int64).reshape(-1)[:columns]
    negative = np.minimum(weights, 0).sum((1, 3), dtype=np.int64).reshape(-1)[:columns]
    min_byte, max_byte = (-128, 127) if is_signed else (0, ACTIVATIONS)
    low = int((min_byte * positive + max_byte * negative).min(initial=0))
    high = int((max_byte * positive + min_byte * negative).max(initial=0))
    if low < -(1 << (RESULT_BITS - 1)) or high >= 1 << (RESULT_BITS - 1):
        reason = f"its sums of products lie between {low} and {high}, which {RESULT_BITS} bits do not hold"
        raise Refused(reason, code="too-large")
    return low, high
