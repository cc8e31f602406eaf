"""Softmax, LogSoftmax, Hardmax and LpNorm: along rows where the axis is the last, else across columns."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import CIdentifier
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.softmax import LpNormAttributes, SoftmaxAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower.plain import compose

MATH = KERNELS / "math.h.in"
ROW = KERNELS / "row.h.in"
TASK = 1 << 14
"""Elements that a task should have, to be worth another thread."""


def chunk(rows: int, row: int) -> dict[str, int]:
    """Share out rows of so many elements: how many go to one task, and how many tasks that makes."""
    each = max(1, TASK // max(row, 1))
    return {"chunk": each, "tasks": -(-rows // each)}


def softmax(node: Node, lowering: Lowering) -> None:
    """Any op that weighs the elements along one axis against each other."""
    x = lowering.tensors[node.inputs[0]]
    attrs = node.attributes(SoftmaxAttributes)
    if x.dtype is not DType.F32:
        compose(node, lowering)
        return
    axis = attrs.axis % len(x.shape)
    outer, n, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    kind, p = node.op.name.lower(), attrs.p if isinstance(attrs, LpNormAttributes) else 0
    params = {"kind": CIdentifier(kind), "p": p}
    stem = f"{kind}{p or ''}"
    args: Mapping[str, int]
    if not x.elements:
        # No elements: no task, and no division by the length of a row.
        outer, n, inner = 0, 1, 1
    if inner == 1:
        fields = (("rows", "i64"), ("n", "i32"), ("chunk", "i32"), ("tasks", "i32"))
        kernel = Kernel(f"{stem}_f32", KERNELS / "softmax_rows.c.in", fields, params, (MATH, ROW))
        args = {"rows": outer, "n": n, **chunk(outer, n)}
    else:
        fields = (("outer", "i64"), ("n", "i32"), ("inner", "i32"), ("chunk", "i32"))
        kernel = Kernel(f"{stem}_inner_f32", KERNELS / "softmax_columns.c.in", fields, params, (MATH, ROW))
        args = {"outer": outer, "n": n, "inner": inner, "chunk": max(1, TASK // (n * MAX_LANES)) * MAX_LANES}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs, inplace=True))


LOWERINGS: Mapping[str, Lower] = dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNorm"), softmax)
