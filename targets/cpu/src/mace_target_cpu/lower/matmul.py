"""Matrix product, with bias and clamp, by the packed matrix kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node, Shape
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.broadcast import strides
from mace_target_cpu.lower.conv import GEMM, need_floats
from mace_target_cpu.lower.packing import Packing, packed, packed_bias

BATCH = 4
"""Batch axes that the kernel loops over."""

BLOCK = 96
"""Rows that one task multiplies."""

FIELDS = (
    *((n, "i32") for n in ("rows", "columns", "depth", "block")),
    *((n, "i32[4]") for n in ("batch", "x_step", "b_step")),
    ("low", "f32"),
    ("high", "f32"),
)
MATMUL = Kernel("matmul_f32", KERNELS / "matmul.c.in", FIELDS, helpers=(GEMM,))


def matmul(node: Node, to: Lowering) -> None:
    """As numpy.matmul; the second operand is packed at build time where it is constant."""
    need_floats(node, to)
    x, b, *bias = node.inputs
    rows_of, columns_of = to.shape(x), to.shape(b)
    if len(rows_of) == 1:
        rows_of = (1, *rows_of)
    if len(columns_of) == 1:
        columns_of = (*columns_of, 1)
    depth, columns = columns_of[-2:]
    outer, matrices = rows_of[:-2], columns_of[:-2]
    rows = rows_of[-2]
    if prod(matrices) == 1:  # one matrix for all: its rows are those of every batch
        rows, outer = rows * prod(outer), ()
    batch, x_step, b_step = _batches(outer, matrices)
    packing = Packing(prod(matrices), columns, depth, to.panel, depth * columns, 1, columns)
    low, high = node.attrs["low"], node.attrs["high"]
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    args = {"rows": rows, "columns": columns, "depth": depth, "block": BLOCK, "low": float(low), "high": float(high)}
    reads = [x, packed(b, packing, node, to), packed_bias(bias[0] if bias else "", 1, columns, node, to)]
    to.call(node, MATMUL, {**args, "batch": batch, "x_step": x_step, "b_step": b_step}, reads, node.outputs)


def _batches(outer: Shape, matrices: Shape) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    rank = max(len(outer), len(matrices))
    if rank > BATCH:
        raise Refused(f"{rank} batch axes; the kernel loops over {BATCH}")
    wide = [(1,) * (BATCH - len(s)) + s for s in (outer, matrices)]
    batch = tuple(map(max, *wide))
    return batch, strides(wide[0], batch), strides(wide[1], batch)


LOWERINGS: Mapping[str, Lower] = {"MatMul": matmul}
