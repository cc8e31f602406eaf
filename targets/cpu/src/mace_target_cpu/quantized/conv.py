"""Conv over quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, panel_width
from mace_target_cpu.lower.conv import GEOMETRY, WINDOWS, Filters, geometry
from mace_target_cpu.quantized.products import (
    IGEMM,
    Columns,
    Weights,
    block_bytes,
    block_rows,
    column_weights,
    factor,
    pack_once,
)
from mace_target_cpu.quantized.storage import (
    C_TYPES,
    CODES,
    INTEGER,
    REQUANTIZE,
    RESULT,
    Scale,
    clamp,
    result,
)

ZEROS = (("x_zero", "i32"), ("w_zero", "i32"))
MATRIX = (("x_type", "i32"), ("results", "i32"), ("group", "i32"), ("panel", "i32"), ("rows", "i64"))
CONV = Kernel(
    "conv_quantized",
    KERNELS / "conv_quantized.c.in",
    (*GEOMETRY, *ZEROS, *MATRIX, *RESULT),
    helpers=(*IGEMM, WINDOWS),
)
DEPTHWISE = KERNELS / "conv_depthwise_quantized.c.in"


def conv(node: Node, to: Lowering) -> None:
    """Any convolution of eight or sixteen bits with constant weights of eight."""
    x, y = factor(node, to), to.tensors[node.outputs[0]]
    filters, weights = Filters.of(node, to), Weights.of(node.inputs[1], to)
    windows = Windows.of(to.shape(node.inputs[1])[1:-1], node.attributes(ConvAttributes))
    columns = Columns.of(node, to, weights, weights.reach(tuple(range(1, weights.values.ndim))))
    args = {**geometry(x, y, windows), "x_zero": Scale.of(x).zero, **result(y, *clamp(node))}
    if filters.group == x.shape[-1] and filters.columns == 1 and filters.group > 1 and y.dtype in C_TYPES:
        _depthwise(node, to, args, weights, columns)
        return
    rows = block_rows(math.prod(y.shape[:-1]), filters.depth)
    args |= {
        "w_zero": weights.zero,
        "x_type": CODES[x.dtype],
        "results": y.shape[-1],
        "group": filters.group,
        "panel": panel_width(to),
        "rows": rows,
    }
    matrices = weights.values.reshape(filters.group, filters.columns, filters.depth).transpose(0, 2, 1)
    w = pack_once(node.inputs[1], matrices, to)
    scratch = block_bytes(rows, filters.depth, x.dtype.size)
    reads = [x.name, w, *column_weights(to, y.name, columns, filters.group)]
    to.call(node, Call(CONV, args, reads, [y.name], scratch=scratch))


def _depthwise(node: Node, to: Lowering, args: dict[str, Arg], weights: Weights, columns: Columns) -> None:
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    taps = (weights.values.astype(np.int16) - weights.zero).reshape(y.shape[-1], -1).T.copy()
    w = to.weight(f"{node.inputs[1]}_packed", taps.shape, "int16", lambda: taps)
    params = {"xtype": C_TYPES[x.dtype], "ytype": C_TYPES[y.dtype], "average": False}
    name = f"conv_depthwise_{x.dtype.value}_{y.dtype.value}"
    fields = (*GEOMETRY, ZEROS[0], *RESULT)
    kernel = Kernel(name, DEPTHWISE, fields, params, helpers=(INTEGER, REQUANTIZE))
    to.call(node, Call(kernel, args, [x.name, w, *column_weights(to, y.name, columns, 1)], [y.name]))


LOWERINGS: dict[str, Lower] = {"Conv": conv}
