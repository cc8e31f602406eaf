"""`arithmetic: bf16`: products with constant matrices from factors rounded to bfloat16, with sums of floats.

What it does not take, depthwise convolutions, matrices that are computed and shallow products, is lowered as
ever: to floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.program import Kernel
from mace_target_cpu.isa import KERNELS, panel_width
from mace_target_cpu.lower.conv import CONV, Filters, is_depthwise, multiply_windows
from mace_target_cpu.lower.conv import conv as conv_f32
from mace_target_cpu.lower.gemm import BLOCK
from mace_target_cpu.lower.matmul import MATMUL, multiply_matrices, second_factor
from mace_target_cpu.lower.matmul import matmul as matmul_f32
from mace_target_cpu.lower.types import need_type, operands

HELPERS = (KERNELS / "amx_shapes.h.in", KERNELS / "gemm_bf16.h.in")
ROOM = ("room", "i64")


def _take_pairs(kernel: Kernel) -> Kernel:
    """Return a kernel of floats with the product of bfloat16."""
    return replace(
        kernel,
        name=str(kernel.name).replace("_f32", "_bf16"),
        fields=(*kernel.fields, ROOM),
        params={**kernel.params, "is_bf16": True},
        helpers=(*kernel.helpers, *HELPERS),
    )


CONV_BF16, MATMUL_BF16 = _take_pairs(CONV), _take_pairs(MATMUL)

TILE_PAIRS = 16
"""Pairs of a row that a tile of AMX holds."""

MIN_DEPTH = 32
"""Below it products stay floats at all levels: a tile is that deep, and most of them are the first layer of a
network, which is read from lines of the image instead (0.25 ms for 0.43 of MobileNetV1's, with AMX)."""

NEAR = 2 * BLOCK
"""Elements of the left factor that are rounded at a time: 256 KB of bfloat16, or twice as much of floats."""

MIN_ROWS = 64
"""Rows that are rounded at a time at least: each time reads all weights, and those of deep products take more
of the caches than such rows."""


def count_pairs(depth: int) -> int:
    """Return the pairs of a column of a packed matrix, as gemm_bf16_cut of gemm_bf16.h.in has them.

    Whole chunks of equal size: levels without tiles need no more than the depth, but share the weights.
    """
    pairs = max(1, -(-depth // 2))
    chunks = -(-pairs // TILE_PAIRS)
    return chunks * -(-pairs // chunks)


def count_row_bytes(depth: int) -> int:
    """Return the bytes of a rounded row at levels that round to floats, as gemm_bf16_cut has them."""
    return 64 * (-(-2 * count_pairs(depth) // 16) | 1)


def count_rows(rows: int, depth: int) -> int:
    """Return how many rows a task may round."""
    return min(rows, max(MIN_ROWS, NEAR // max(1, depth)))


def round_to_bfloat(array: Array) -> Array:
    """Return the bits of bfloat16, each to the nearest, of two equally near ones the even one.

    Numbers below 2^-126 are 0, because AMX multiplies them as 0.
    """
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    magnitude = bits & 0x7FFFFFFF
    nearest = np.where(magnitude > 0x7F800000, (bits | 0x00400000) >> 16, nearest)
    nearest = np.where(magnitude < 0x00800000, bits >> 16 & 0x8000, nearest)
    return nearest.astype(np.uint16)


def pack_pairs(matrices: Array, panel: int) -> Array:
    """Arrange [count, depth, columns] as [count, panels, pairs, panel, 2] of bfloat16, padded by zeros."""
    count, depth, columns = matrices.shape
    pairs, panels = count_pairs(depth), -(-columns // panel)
    padded = np.zeros((count, 2 * pairs, panels * panel), np.uint16)
    padded[:, :depth, :columns] = round_to_bfloat(matrices)
    return np.ascontiguousarray(padded.reshape(count, pairs, 2, panels, panel).transpose(0, 3, 1, 4, 2))


def _pack_once(name: str, matrices: Array, lowering: Lowering, order: str) -> str:
    """Return the name of packed matrices; order: how those of the tensor `name` lie."""
    count, depth, columns = matrices.shape
    panel = panel_width(lowering)
    shape = (count, -(-columns // panel), count_pairs(depth), panel, 2)
    return lowering.once(
        (name, f"pairs of {order}", shape),
        lambda: lowering.weight(f"{name}_packed", shape, "uint16", lambda: pack_pairs(matrices, panel)),
    )


def conv(node: Node, lowering: Lowering) -> None:
    """Lower a convolution with constant filters; depthwise and shallow ones and other types as ever."""
    constant = lowering.constant(node.inputs[1])
    x = lowering.tensors[node.inputs[0]]
    filters = Filters.from_node(node, lowering)
    is_fit = x.dtype is DType.F32 and filters.depth >= MIN_DEPTH and not is_depthwise(x, filters)
    if constant is None or not is_fit:
        conv_f32(node, lowering)
        return
    need_type(node, *operands(node, lowering))
    matrices = constant.reshape(filters.group, filters.columns, filters.depth).transpose(0, 2, 1)
    call = multiply_windows(node, lowering, _pack_once(node.inputs[1], matrices, lowering, "filters"))
    rows = call.args["rows"]
    assert isinstance(rows, int)
    rows = count_rows(rows, filters.depth)
    room = rows * count_row_bytes(filters.depth)
    args = {**call.args, "rows": rows, "room": room}
    lowering.call(node, replace(call, kernel=CONV_BF16, args=args, scratch=room + call.scratch))


def matmul(node: Node, lowering: Lowering) -> None:
    """Lower a product with constant matrices; others as ever."""
    constant = lowering.constant(node.inputs[1])
    size = second_factor(lowering.shape(node.inputs[1]))
    is_fit = lowering.tensors[node.inputs[0]].dtype is DType.F32 and size[1] >= MIN_DEPTH
    if constant is None or not is_fit:
        matmul_f32(node, lowering)
        return
    packed = _pack_once(node.inputs[1], constant.reshape(size), lowering, "rows")
    call = multiply_matrices(node, lowering, packed)
    rows, depth = call.args["rows"], size[1]
    assert isinstance(rows, int)
    room = count_rows(rows, depth) * count_row_bytes(depth)
    args = {**call.args, "block": max(NEAR, MIN_ROWS * depth), "room": room}
    lowering.call(node, replace(call, kernel=MATMUL_BF16, args=args, scratch=room))


BFLOATS: Mapping[str, Lower] = {"Conv": conv, "MatMul": matmul}
"""By op."""
