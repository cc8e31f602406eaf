"""OneHot: by element size, nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.onehot import OneHotAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import index_type
from mace_target_cpu.lower.types import unsigned_type


def onehot(node: Node, lowering: Lowering) -> None:
    """Rows are what lies before the new axis."""
    indices, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    axis = node.attributes(OneHotAttributes).axis % len(y.shape)
    # Values are moved, not computed: one kernel for each size.
    bits = 8 * y.dtype.size
    params = {"itype": index_type(indices), "ctype": unsigned_type(bits // 8)}
    fields = (("rows", "i64"), ("depth", "i64"), ("n", "i64"))
    kernel = Kernel(f"onehot_{bits}_{indices.dtype.value}", KERNELS / "onehot.c.in", fields, params)
    args = {"rows": prod(indices.shape[:axis]), "depth": y.shape[axis], "n": prod(indices.shape[axis:])}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"OneHot": onehot}
