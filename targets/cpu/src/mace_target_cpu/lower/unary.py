"""Element-wise ops of one input."""

from __future__ import annotations

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering
from mace_target_cpu.isa import KERNELS

EXPRESSIONS = {"Relu": "x[i] > 0 ? x[i] : 0"}


def unary(node: Node, to: Lowering) -> None:
    """Any of EXPRESSIONS."""
    x = to.tensors[node.inputs[0]]
    params = {"ctype": "float", "expression": EXPRESSIONS[node.op.name]}
    kernel = Kernel(f"{node.op.name.lower()}_{x.dtype.value}", KERNELS / "unary.c.in", (("n", "i64"),), params)
    to.call(node, kernel, {"n": x.elements}, node.inputs, node.outputs, inplace=True)


LOWERINGS: dict[str, Lower] = dict.fromkeys(EXPRESSIONS, unary)
