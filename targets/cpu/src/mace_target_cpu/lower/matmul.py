"""MatMul: the second factor in panels, packed at build time if it is a constant.

Else it is packed before each product.
"""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import DType, Node, Shape
from mace_core.lowering import Lower, Lowering
from mace_core.ops.conv import ClampAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, panel_width
from mace_target_cpu.lower.gemm import (
    BLOCK,
    GEMM,
    GEMM_TILES,
    optional,
    pack,
    pack_at_run_time,
    packed_size,
)
from mace_target_cpu.lower.plain import plain_product
from mace_target_cpu.lower.types import refuse_type

BATCH_AXES = 6

MATMUL = Kernel(
    "matmul_f32",
    KERNELS / "matmul.c.in",
    (
        ("rows", "i64"),
        ("depth", "i32"),
        ("columns", "i32"),
        ("panel", "i32"),
        ("block", "i64"),
        ("batch", f"i32[{BATCH_AXES}]"),
        ("step_a", f"i64[{BATCH_AXES}]"),
        ("step_b", f"i64[{BATCH_AXES}]"),
        ("low", "f32"),
        ("high", "f32"),
    ),
    helpers=(*GEMM, GEMM_TILES),
)


def matmul(node: Node, lowering: Lowering) -> None:
    """Any product; a batch of left factors with one right factor is a single product of more rows.

    Only f32 is fast.
    """
    dtype = lowering.tensors[node.inputs[0]].dtype
    if dtype in (DType.F16, DType.BOOL):
        raise refuse_type(node.op.name, dtype)
    a, b = node.inputs[:2]
    if dtype is not DType.F32:
        args = _list_arguments(node, lowering)
        kernel = plain_product(dtype, MATMUL, BATCH_AXES)
        # The plain kernel takes the same arguments but those of packing.
        names = {name for name, _ in kernel.fields}
        plain = {name: value for name, value in args.items() if name in names}
        lowering.call(node, Call(kernel, plain, [a, b, optional(node, 2)], node.outputs))
        return
    packed = _pack_factor(node, lowering, second_factor(lowering.shape(b)))
    lowering.call(node, multiply_matrices(node, lowering, packed))


def multiply_matrices(node: Node, lowering: Lowering, packed: str) -> Call:
    """Return the call of the matrix kernel for a product of f32 with a packed second factor."""
    reads = [node.inputs[0], packed, optional(node, 2)]
    return Call(MATMUL, _list_arguments(node, lowering), reads, node.outputs)


def second_factor(shape: Shape) -> tuple[int, int, int]:
    """Return how many matrices the second factor of a product is, and the rows and columns of each."""
    depth, columns = (shape[0], 1) if len(shape) == 1 else shape[-2:]
    return math.prod(shape[:-2]), depth, columns


def _list_arguments(node: Node, lowering: Lowering) -> dict[str, Arg]:
    left, right = lowering.shape(node.inputs[0]), lowering.shape(node.inputs[1])
    rows = left[-2] if len(left) > 1 else 1
    count, depth, columns = second_factor(right)
    batch_a, batch_b = left[:-2], right[:-2]
    # One matrix for all batches: their rows are rows of one larger product, which fills tiles better.
    if count == 1:
        rows, batch_a, batch_b = rows * math.prod(batch_a), (), ()
    batch = np.broadcast_shapes(batch_a, batch_b)
    attrs = node.attributes(ClampAttributes)
    return {
        "rows": rows,
        "depth": depth,
        "columns": columns,
        "panel": panel_width(lowering),
        "block": BLOCK,
        "batch": (1,) * (BATCH_AXES - len(batch)) + batch,
        "step_a": _batch_steps(batch_a),
        "step_b": _batch_steps(batch_b),
        "low": attrs.low,
        "high": attrs.high,
    }


def _batch_steps(batch: Shape) -> tuple[int, ...]:
    """How many matrices further one step along each batch axis leads; none along one that is broadcast."""
    steps = [0] * BATCH_AXES
    for axis, size in enumerate(batch):
        if size > 1:
            steps[BATCH_AXES - len(batch) + axis] = math.prod(batch[axis + 1 :])
    return tuple(steps)


def _pack_factor(node: Node, lowering: Lowering, size: tuple[int, int, int]) -> str:
    b = node.inputs[1]
    constant = lowering.constant(b)
    if constant is None:
        return pack_at_run_time(node, lowering, b, size, transposed=False)
    panel = panel_width(lowering)
    shape = packed_size(*size, panel)
    return lowering.once(
        (b, "rows", shape),
        lambda: lowering.weight(f"{b}_packed", shape, "float32", lambda: pack(constant.reshape(size), panel)),
    )


LOWERINGS: dict[str, Lower] = {"MatMul": matmul}
