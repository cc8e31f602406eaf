"""Products of integer matrices: the helpers of their kernels, and matrices packed as those read them.

Lowerings of integer ops and of quantized ones share them: quantized imports lower, never the other way round.
"""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Shape
from mace_target_cpu.isa import KERNELS, Packing
from mace_target_cpu.lower.gemm import BLOCK, GEMM, MOST_ROWS

INTEGER = KERNELS / "integer.h.in"
REQUANTIZE = KERNELS / "requantize.h.in"
IGEMM = (GEMM, INTEGER, REQUANTIZE, KERNELS / "igemm.h.in", KERNELS / "igemm_bytes.h.in")
"""Helpers of kernels that multiply matrices of integers."""


def packed_bytes_shape(matrices: Shape, packing: Packing) -> Shape:
    """Return the shape of what `pack_bytes` makes of [count, depth, columns]."""
    count, depth, columns = matrices
    panel, step = packing.panel, packing.depth_step
    return count, -(-columns // panel), -(-depth // step), panel, step


def pack_bytes(matrices: Array, packing: Packing) -> Array:
    """Arrange int8 [count, depth, columns] as [count, panels, depth / step, panel, step], padded by zeros.

    step: elements of a column that lie together, because the level multiplies so many by one instruction.
    """
    count, panels, steps, panel, step = packed_bytes_shape(matrices.shape, packing)
    full = np.zeros((count, steps * step, panels * panel), np.int8)
    full[:, : matrices.shape[1], : matrices.shape[2]] = matrices
    return np.ascontiguousarray(full.reshape(count, steps, step, panels, panel).transpose(0, 3, 1, 4, 2))


def block_rows(rows: int, depth: int) -> int:
    """Return the rows of a left factor that are worked on at a time."""
    return max(MOST_ROWS, min(rows, BLOCK // max(1, depth)))


def block_bytes(rows: int, depth: int, gathered: int) -> int:
    """Return the bytes of scratch for so many rows, as any level needs them.

    Those are two numbers for each row, one for each quad, elements in 16 bits and as gathered.
    gathered: bytes of an element; 0 if none are.
    """
    return rows * (8 + 2 * padded_depth(depth) + depth * gathered) + padded_depth(depth)


def padded_depth(depth: int) -> int:
    """Return a depth with room for the zeros of the last quad, at the levels that read quads."""
    return -(-depth // 4) * 4
