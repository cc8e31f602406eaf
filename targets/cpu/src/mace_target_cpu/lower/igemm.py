"""Products of integer matrices: the helpers of their kernels, and matrices packed as those read them.

Lowerings of integer ops and of quantized ones share them: quantized imports lower, never the other way round.
"""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, Shape
from mace_target_cpu.isa import KERNELS, Packing
from mace_target_cpu.lower.gemm import BLOCK, GEMM_CUT, MOST_ROWS

INTEGER = KERNELS / "integer.h.in"
REQUANTIZE = KERNELS / "requantize.h.in"
IGEMM = (
    GEMM_CUT,
    INTEGER,
    REQUANTIZE,
    *(KERNELS / name for name in ("igemm.h.in", "igemm_bytes.h.in", "amx_shapes.h.in", "igemm_tiles.h.in")),
)
"""Helpers of kernels that multiply matrices of integers."""

TILE_ROWS, TILE_DEPTH, TILE_ALIGNMENT = 16, 64, 64
"""A tile of bytes in a register of AMX, and where it begins in memory."""


def packed_bytes_shape(matrices: Shape, packing: Packing) -> Shape:
    """Return the shape of what `pack_bytes` makes of [count, depth, columns]."""
    count, depth, columns = matrices
    panel, step = packing.panel, packing.depth_step
    return count, -(-columns // panel), -(-depth // step), panel, step


def pack_bytes(matrices: Array, packing: Packing) -> Array:
    """Arrange int8 [count, depth, columns] as [count, panels, depth / step, panel, step], padded by zeros.

    step: elements of a column that lie together, because the level multiplies so many by one instruction.
    The zeros that pad are zeros after `Packing.offset` was added, so that they add nothing to products.
    """
    count, panels, steps, panel, step = packed_bytes_shape(matrices.shape, packing)
    full = np.zeros((count, steps * step, panels * panel), np.int8)
    full[:, : matrices.shape[1], : matrices.shape[2]] = matrices ^ np.int8(-packing.offset)
    return np.ascontiguousarray(full.reshape(count, steps, step, panels, panel).transpose(0, 3, 1, 4, 2))


def wide_rows(rows: int, depth: int) -> int:
    """Return the rows of a left factor that are worked on at a time where its elements have 16 bits."""
    return max(MOST_ROWS, min(rows, BLOCK // max(1, depth)))


def byte_rows(rows: int, depth: int, block: int = BLOCK) -> int:
    """Return the rows that are worked on at a time where bytes are multiplied: whole tiles, or all rows.

    block: bytes that they have, roughly. They are at least 128, however long, because each block reads all
    weights, and those of long rows come from a far cache.
    """
    limit = max(8 * TILE_ROWS, block // max(1, depth) // TILE_ROWS * TILE_ROWS)
    return max(MOST_ROWS, min(rows, limit))


def wide_scratch(rows: int, depth: int, gathered: int) -> int:
    """Return the scratch of a block of `wide_rows`: a sum for each row, elements in 16 bits and as gathered.

    gathered: bytes of an element; 0 if none are.
    """
    return wide_rows(rows, depth) * (4 + 2 * padded_depth(depth) + depth * gathered)


def byte_scratch(rows: int, depth: int, gathered: int) -> int:
    """Return the scratch of a block of `byte_rows`.

    Those are two numbers for each row, one for each quad, and bytes as gathered, as unsigned ones and in
    tiles.
    """
    block, padded = byte_rows(rows, depth), padded_depth(depth)
    return block * (8 + padded + depth * gathered) + padded + tile_bytes(block, padded)


def block_args(rows: int, depth: int) -> dict[str, int]:
    """Return the arguments of a kernel that say how many rows it works on at a time."""
    return {"byte_rows": byte_rows(rows, depth), "wide_rows": wide_rows(rows, depth)}


def block_scratch(rows: int, depth: int, gathered: int) -> int:
    """Return the scratch of a block, as any level needs it."""
    return max(wide_scratch(rows, depth, gathered), byte_scratch(rows, depth, gathered))


def tile_bytes(rows: int, depth: int) -> int:
    """Return the bytes that rows of a depth of whole quads take as tiles, see igemm_tiles.h.in."""
    chunks = max(1, -(-depth // TILE_DEPTH))
    row = -(-depth // 4 // chunks) * 4 * chunks
    return -(-rows // TILE_ROWS) * TILE_ROWS * row + TILE_ALIGNMENT


def padded_depth(depth: int) -> int:
    """Return a depth with room for the zeros of the last quad, at the levels that read quads."""
    return -(-depth // 4) * 4
