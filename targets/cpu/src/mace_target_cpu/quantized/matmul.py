"""MatMul over quantized tensors.

With constant weights it is a convolution of one pixel, with a computed factor it has a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.candidates import Candidate
from mace_core.integer_storage import IntegerWeights
from mace_core.ir import DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, packing, panel_width
from mace_target_cpu.lower.igemm import (
    IGEMM,
    block_args,
    block_scratch,
    padded_depth,
    wide_rows,
    wide_scratch,
)
from mace_target_cpu.lower.ordered import ProductCall, offer, row_of
from mace_target_cpu.quantized.conv import conv_kernel
from mace_target_cpu.quantized.products import (
    PRODUCT_RESULT,
    ColumnScales,
    column_weights,
    factor,
    pack_once,
)
from mace_target_cpu.quantized.storage import CODES, EIGHT_BITS, Scale, need_stored

ONES = (1, 1, 1)
FIELDS = (
    *((name, "i64") for name in ("batches", "rows", "depth", "columns", "step_a", "step_b", "block")),
    *((name, "i32") for name in ("panel", "a_zero", "b_zero", "a_type", "b_signed")),
)
COMPUTED = Kernel(
    "matmul_quantized", KERNELS / "matmul_quantized.c.in", (*FIELDS, *PRODUCT_RESULT), helpers=IGEMM
)


def matmul(node: Node, lowering: Lowering) -> None:
    """Multiply eight or sixteen bits with a constant matrix, or eight bits with a computed one.

    The computed one is one for every batch or one for all.
    """
    if lowering.constant(node.inputs[1]) is None:
        _lower_computed(node, lowering)
    else:
        lowering.call(node, make_product(node, lowering).call)


def make_product(node: Node, lowering: Lowering) -> ProductCall:
    """Return the call of a product with a constant matrix; Refused for a computed one."""
    x, y = factor(node, lowering), lowering.tensors[node.outputs[0]]
    shape, weights = lowering.shape(node.inputs[1]), IntegerWeights.from_constant(node.inputs[1], lowering)
    if len(shape) < 2 or math.prod(shape[:-2]) != 1 or len(x.shape) < 2:
        raise Refused("its second factor is a batch, or a factor is a vector", code="shape")
    depth, results = shape[-2:]
    rows = math.prod(x.shape[:-1])
    w = pack_once(node.inputs[1], weights.values.reshape(1, depth, results), lowering)
    columns = ColumnScales.from_node(node, lowering, weights, weights.reach((-2,)))
    columns = columns.without_zero_point(x, weights.sums((-2,)), packing(lowering))
    # One image of one row: a product is a convolution of one-pixel windows.
    pixels = (1, 1, rows)
    args = {
        "batch": 1,
        "channels": depth,
        "in": pixels,
        "out": pixels,
        "kernel": ONES,
        "stride": ONES,
        "dilation": ONES,
        "pad": (0, 0, 0),
        "x_zero": Scale.from_tensor(x).zero,
        "w_zero": weights.zero + packing(lowering).offset,
        "x_type": CODES[x.dtype],
        "results": results,
        "group": 1,
        "panel": panel_width(lowering),
        **block_args(rows, depth),
        "strip": False,
        **columns.result(node, y),
    }
    reads = [x.name, w, *column_weights(lowering, y.name, columns, 1), ""]
    call = Call(conv_kernel(x), args, reads, [y.name], scratch=block_scratch(rows, depth, 0))
    return ProductCall(call, rows, row_of(depth), x.dtype, w)


def _lower_computed(node: Node, lowering: Lowering) -> None:
    a, b, y = (need_stored(lowering, name, EIGHT_BITS) for name in (*node.inputs[:2], *node.outputs))
    if min(len(a.shape), len(b.shape)) < 2 or (math.prod(b.shape[:-2]) != 1 and a.shape[:-2] != b.shape[:-2]):
        raise Refused(
            f"its factors are batches of different sizes: {list(a.shape)} and {list(b.shape)}", code="shape"
        )
    depth, columns = b.shape[-2:]
    # |a| and |b| less their zero points are below 2^8, so each product is below 2^16.
    if depth << 16 > 1 << 31 or not y.elements:
        raise Refused(f"sums of {depth} products may not fit 32 bits, or there are none", code="too-large")
    single, shift = math.prod(b.shape[:-2]) == 1, 128 if b.dtype is DType.U8 else 0
    rows = math.prod(a.shape[:-1]) if single else a.shape[-2]
    # Only zero point and scale are known; the values come at run time.
    weights = IntegerWeights(
        np.zeros((depth, columns), np.int8),
        Scale.from_tensor(b).zero - shift,
        np.array([Scale.from_tensor(b).step]),
    )
    sums = ColumnScales.from_node(node, lowering, weights, np.zeros(columns, np.int64))
    panel = panel_width(lowering)
    block, padded_columns = wide_rows(rows, depth), -(-columns // panel) * panel
    args = {
        "batches": 1 if single else math.prod(a.shape[:-2]),
        "rows": rows,
        "depth": depth,
        "columns": columns,
        "step_a": rows * depth,
        "step_b": depth * columns,
        "block": block,
        "panel": panel,
        "a_zero": Scale.from_tensor(a).zero,
        "b_zero": weights.zero + packing(lowering).offset,
        "a_type": CODES[a.dtype],
        "b_signed": b.dtype is DType.I8,
        **sums.result(node, y),
    }
    reads = [a.name, b.name, *column_weights(lowering, y.name, sums, 1)]
    # Kernels whose products have a scalar factor begin packed matrices at whole registers.
    alignment = 4 * panel if packing(lowering).by_scalar else 0
    scratch = wide_scratch(rows, depth, 0) + padded_depth(depth) * padded_columns + alignment
    lowering.call(node, Call(COMPUTED, args, reads, [y.name], scratch=scratch))


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return the products of the factors' elements."""
    x, w = (lowering.tensors[name] for name in node.inputs[:2])
    return math.prod(x.shape[:-1]) * w.elements


LOWERINGS: dict[str, Lower | Sequence[Candidate]] = {
    "MatMul": (offer(make_product, _cost), Candidate("products", matmul, _cost)),
}
