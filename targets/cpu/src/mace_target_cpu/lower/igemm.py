"""Products of integer matrices: the helpers of their kernels, and matrices packed as those read them.

Lowerings of integer ops and of quantized ones share them: quantized imports lower, never the other way round.
"""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gemm import BLOCK, GEMM, MOST_ROWS

INTEGER = KERNELS / "integer.h.in"
REQUANTIZE = KERNELS / "requantize.h.in"
IGEMM = (GEMM, INTEGER, REQUANTIZE, KERNELS / "igemm.h.in")
"""Helpers of kernels that multiply matrices of integers."""


def pack_pairs(matrices: Array, panel: int) -> Array:
    """Arrange int8 [count, depth, columns] as [count, panels, depth / 2, panel, 2], padded by zeros."""
    count, depth, columns = matrices.shape
    panels, pairs = -(-columns // panel), -(-depth // 2)
    full = np.zeros((count, 2 * pairs, panels * panel), np.int8)
    full[:, :depth, :columns] = matrices
    return np.ascontiguousarray(full.reshape(count, pairs, 2, panels, panel).transpose(0, 3, 1, 4, 2))


def block_rows(rows: int, depth: int) -> int:
    """Return the rows of a left factor that are worked on at a time."""
    return max(MOST_ROWS, min(rows, BLOCK // max(1, depth)))


def block_bytes(rows: int, depth: int, gathered: int) -> int:
    """Return the bytes of scratch for so many rows: their sums, their elements in 16 bits and as gathered.

    gathered: bytes of an element; 0 if none are.
    """
    return rows * (4 + 2 * (depth + depth % 2) + depth * gathered)
