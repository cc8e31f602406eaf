"""MatMul of a quantized factor and quantized constant weights: a convolution of one pixel."""

from __future__ import annotations

import math

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.program import Call, Lowering, Refused
from mace_target_cpu.quantized.conv import CONV
from mace_target_cpu.quantized.products import Columns, Weights, block_bytes, block_rows, column_weights, factor, pack_once
from mace_target_cpu.quantized.storage import CODES, Scale, clamp, result

ONES = (1, 1, 1)


def matmul(node: Node, to: Lowering) -> None:
    """A product with one matrix of constant weights."""
    x, y = factor(node, to), to.tensors[node.outputs[0]]
    shape, weights = to.shape(node.inputs[1]), Weights.of(node.inputs[1], to)
    if len(shape) < 2 or math.prod(shape[:-2]) != 1 or len(x.shape) < 2:
        raise Refused("a batch of second factors, or a vector")
    depth, results = shape[-2:]
    rows = math.prod(x.shape[:-1])
    w = pack_once(node.inputs[1], weights.values.reshape(1, depth, results), to)
    columns = Columns.of(node, to, weights, weights.reach((-2,)))
    pixels, block = (1, 1, rows), block_rows(rows, depth)
    args = {
        "batch": 1,
        "channels": depth,
        "in": pixels,
        "out": pixels,
        "kernel": ONES,
        "stride": ONES,
        "dilation": ONES,
        "pad": (0, 0, 0),
        "x_zero": Scale.of(x).zero,
        "w_zero": weights.zero,
        "x_type": CODES[x.dtype],
        "results": results,
        "group": 1,
        "panel": to.panel,
        "rows": block,
        **result(y, *clamp(node)),
    }
    reads = [x.name, w, *column_weights(to, y.name, columns, 1)]
    to.call(node, Call(CONV, args, reads, [y.name], scratch=block_bytes(block, depth, 0)))


LOWERINGS: dict[str, Lower] = {"MatMul": matmul}
