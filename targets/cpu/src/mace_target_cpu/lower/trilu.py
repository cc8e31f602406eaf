"""Trilu: every row of a matrix keeps what lies on one side of the diagonal."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.trilu import TriluAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks

NAMES = ("height", "columns", "size", "k", "upper", "rows", "grain")


def trilu(node: Node, lowering: Lowering) -> None:
    """One row after another, of all matrices; by bytes."""
    x = lowering.tensors[node.inputs[0]]
    if x.elements == 0:
        return
    height, columns = x.shape[-2:]
    attrs = node.attributes(TriluAttributes)
    # Beyond these all elements are kept or none; the kernel's sum with a row cannot overflow.
    k = max(-height, min(attrs.k, columns))
    args = {
        "height": height,
        "columns": columns,
        "size": x.dtype.size,
        "k": k,
        "upper": int(attrs.upper),
    }
    rows = chunks(prod(x.shape[:-1]), columns * x.dtype.size)
    kernel = Kernel("trilu", KERNELS / "trilu.c.in", tuple((n, "i64") for n in NAMES), helpers=(MOVE,))
    lowering.call(node, Call(kernel, {**args, **rows}, node.inputs, node.outputs, inplace=True))


LOWERINGS: Mapping[str, Lower] = {"Trilu": trilu}
