"""What the lowerings of products and convolutions share: matrices packed for the matrix kernel."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, panel_width

GEMM_CUT = KERNELS / "gemm_cut.h.in"
"""How products of all types are cut into tasks."""

GEMM = (GEMM_CUT, KERNELS / "gemm.h.in")
"""Helpers of kernels that multiply matrices of floats."""

GEMM_TILES = KERNELS / "gemm_tiles.h.in"

BLOCK = 1 << 16
"""Floats of the left matrix that are worked on at a time: 256 KiB stay in the second-level cache."""

MOST_ROWS = 16
"""The highest tile of any level: a block has room for so many rows, however long they are."""

PACK = Kernel(
    "gemm_pack_f32",
    KERNELS / "gemm_pack.c.in",
    (
        ("count", "i32"),
        ("depth", "i32"),
        ("columns", "i32"),
        ("panel", "i32"),
        ("size", "i64"),
        ("step_k", "i64"),
        ("step_column", "i64"),
    ),
)


def pack(matrices: Array, panel: int) -> Array:
    """Arrange [count, depth, columns] as [count, panels, depth, panel], padded by zeros."""
    count, depth, columns = matrices.shape
    panels = -(-columns // panel)
    padded = np.zeros((count, depth, panels * panel), np.float32)
    padded[:, :, :columns] = matrices
    return np.ascontiguousarray(padded.reshape(count, depth, panels, panel).transpose(0, 2, 1, 3))


def packed_size(count: int, depth: int, columns: int, panel: int) -> tuple[int, int, int, int]:
    """Return the shape of what `pack` makes."""
    return count, -(-columns // panel), depth, panel


def pack_at_run_time(
    node: Node, lowering: Lowering, matrix: str, size: tuple[int, int, int], *, transposed: bool
) -> str:
    """Append a call that packs a computed tensor of [count, depth, columns] matrices.

    Returns the packed tensor's name.

    transposed: the matrices lie as [columns, depth].
    """
    count, depth, columns = size
    panel = panel_width(lowering)
    packed = lowering.temporary(
        Tensor(f"{matrix}_packed", DType.F32, packed_size(count, depth, columns, panel))
    )
    # Strides of the matrix as it lies, so that one kernel packs both orders.
    steps = (1, depth) if transposed else (columns, 1)
    args = {"count": count, "depth": depth, "columns": columns, "panel": panel, "size": depth * columns}
    lowering.call(node, Call(PACK, {**args, "step_k": steps[0], "step_column": steps[1]}, [matrix], [packed]))
    return packed


def optional(node: Node, index: int) -> str:
    """Return the name of an input, "" if it is absent."""
    return node.inputs[index] if len(node.inputs) > index else ""
