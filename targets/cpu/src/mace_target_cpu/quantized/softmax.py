"""Softmax over quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.quantized.storage import C_TYPES, EIGHT_BITS, NARROW, Scale, need_stored, result

FIELDS = (("rows", "i64"), ("n", "i32"), ("inverse", "f32"), ("high", "f32"), ("y_zero", "i32"))
ONE = 1 << 23
"""What the table holds for exp(0)."""


def softmax(node: Node, lowering: Lowering) -> None:
    """Along the last axis."""
    x, y = (
        need_stored(lowering, node.inputs[0], NARROW),
        need_stored(lowering, node.outputs[0], tuple(C_TYPES)),
    )
    axis = node.attributes(SoftmaxAttributes).axis
    if math.prod(x.shape[axis % len(x.shape) + 1 :]) != 1:
        raise Refused("Softmax runs along an inner axis", code="shape")
    wide, low = x.dtype not in EIGHT_BITS, np.arange(256) * Scale.from_tensor(x).step
    parts = (low * 256, low) if wide else (low,)  # exp(-(256 i + j)) is exp(-256 i) * exp(-j)
    # 2^23 for exp(0): the kernel's float holds every entry exactly.
    table = np.rint(np.exp(-np.concatenate(parts)) * ONE).astype(np.int32)
    name = lowering.weight(f"{y.name}.table", table.shape, "int32", lambda: table)
    types = {"xtype": C_TYPES[x.dtype], "ytype": C_TYPES[y.dtype], "wide": wide}
    kernel = Kernel(
        f"softmax_{x.dtype.value}_{y.dtype.value}", KERNELS / "softmax_quantized.c.in", FIELDS, types
    )
    limits, n = result(y), x.shape[axis]
    args = {
        "rows": x.elements // max(1, n),
        "n": n,
        "inverse": 1 / Scale.from_tensor(y).step,
        "high": limits["high"],
        "y_zero": limits["y_zero"],
    }
    lowering.call(node, Call(kernel, args, [x.name, name], [y.name]))


LOWERINGS: dict[str, Lower] = {"Softmax": softmax}
