"""MatMulInteger: constant weights in panels, anything else in plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.candidates import Candidate
from mace_core.ir import DType, Node, Shape
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, packing, panel_width
from mace_target_cpu.lower.gemm import optional
from mace_target_cpu.lower.igemm import IGEMM, block_args, block_scratch, pack_bytes
from mace_target_cpu.lower.ordered import ProductCall, offer, row_of
from mace_target_cpu.lower.types import c_type

FIELDS = (
    ("rows", "i64"),
    ("depth", "i64"),
    ("byte_rows", "i64"),
    ("wide_rows", "i64"),
    ("columns", "i32"),
    ("panel", "i32"),
    ("is_signed", "i32"),
    ("b_zero", "i32"),
)
PLAIN = (
    ("batches", "i64"),
    ("rows", "i64"),
    ("depth", "i64"),
    ("columns", "i64"),
    ("step_a", "i64"),
    ("step_b", "i64"),
)


def matmul_integer(node: Node, lowering: Lowering) -> None:
    """Any product of eight-bit integers whose batches are of one shape or one of them single."""
    if _is_packed(node, lowering):
        lowering.call(node, make_product(node, lowering).call)
    else:
        _lower_plain(node, lowering)


def _factor_shapes(node: Node, lowering: Lowering) -> tuple[Shape, Shape]:
    """Return the shapes of the factors as batches of matrices."""
    left, right = (lowering.shape(name) for name in node.inputs[:2])
    return left if len(left) > 1 else (1, *left), right if len(right) > 1 else (*right, 1)


def _is_packed(node: Node, lowering: Lowering) -> bool:
    """Tell whether the second factor is one matrix that can be packed at build time.

    That needs its values and its zero point.
    """
    _, right = _factor_shapes(node, lowering)
    zero = optional(node, 3)
    is_known = lowering.constant(node.inputs[1]) is not None and (
        not zero or lowering.constant(zero) is not None
    )
    return is_known and math.prod(right[:-2]) == 1


def make_product(node: Node, lowering: Lowering) -> ProductCall:
    """Return the call of a product with a constant matrix; Refused for any other."""
    if not _is_packed(node, lowering):
        raise Refused("its second factor or that one's zero point is computed, or a batch", code="other")
    a, b = (lowering.tensors[name] for name in node.inputs[:2])
    left, right = _factor_shapes(node, lowering)
    rows, (depth, columns) = math.prod(left[:-1]), right[-2:]
    values, zeros = lowering.constant(b.name), lowering.constant(optional(node, 3))
    assert values is not None
    # uint8 less 128 is int8, with a zero point less 128: one kernel for both.
    shift = 128 if b.dtype is DType.U8 else 0
    panel = panel_width(lowering)
    matrix = (values.astype(np.int16) - shift).astype(np.int8).reshape(1, depth, columns)
    packed = pack_bytes(matrix, packing(lowering))
    zero = (0 if zeros is None else int(zeros.reshape(-1)[0])) - shift
    column_sums = np.zeros(-(-columns // panel) * panel, np.int32)
    # Modulo 2^32, as kernels add.
    column_sums[:columns] = (matrix[0].astype(np.int64) - zero).sum(0).astype(np.int32)
    args = {
        "rows": rows,
        "depth": depth,
        "columns": columns,
        "panel": panel,
        **block_args(rows, depth),
        "is_signed": a.dtype is DType.I8,
        "b_zero": zero + packing(lowering).offset,
    }
    kernel = Kernel(
        f"matmul_integer_{a.dtype.value}",
        KERNELS / "matmul_integer.c.in",
        FIELDS,
        {"xtype": c_type(a), "is_ordered": False},
        IGEMM,
    )
    # Another level may have other panels, and its own packed weight and sums.
    w = lowering.once(
        (b.name, packed.shape, "integers"),
        lambda: lowering.weight(f"{b.name}_packed", packed.shape, "int8", lambda: packed),
    )
    sums = lowering.once(
        (b.name, column_sums.shape, zero, "sums"),
        lambda: lowering.weight(f"{b.name}.sums", column_sums.shape, "int32", lambda: column_sums),
    )
    reads = [a.name, w, sums, optional(node, 2)]
    scratch = block_scratch(rows, depth, 0) + column_sums.nbytes
    call = Call(kernel, args, reads, node.outputs, scratch=scratch)
    return ProductCall(call, rows, row_of(depth), a.dtype, w)


def _lower_plain(node: Node, lowering: Lowering) -> None:
    a, b = (lowering.tensors[name] for name in node.inputs[:2])
    left, right = _factor_shapes(node, lowering)
    sizes = [math.prod(shape[:-2]) for shape in (left, right)]
    if 1 not in sizes and left[:-2] != right[:-2]:
        reason = (
            f"batches of {list(left[:-2])} and {list(right[:-2])}; "
            "the kernel takes equal ones, or one factor for all"
        )
        raise Refused(reason, code="shape", remedy="expand the smaller batch in the model")
    args = {
        "batches": max(sizes),
        "rows": left[-2],
        "depth": left[-1],
        "columns": right[-1],
        "step_a": left[-2] * left[-1] if sizes[0] > 1 else 0,
        "step_b": right[-2] * right[-1] if sizes[1] > 1 else 0,
    }
    name = f"matmul_integer_plain_{a.dtype.value}_{b.dtype.value}"
    kernel = Kernel(
        name, KERNELS / "matmul_integer_plain.c.in", PLAIN, {"atype": c_type(a), "btype": c_type(b)}
    )
    lowering.call(
        node, Call(kernel, args, [a.name, b.name, optional(node, 2), optional(node, 3)], node.outputs)
    )


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return the number of products."""
    left, right = _factor_shapes(node, lowering)
    return math.prod(left) * right[-1]


LOWERINGS: dict[str, Lower | Sequence[Candidate]] = {
    "MatMulInteger": (offer(make_product, _cost), Candidate("products", matmul_integer, _cost)),
}
