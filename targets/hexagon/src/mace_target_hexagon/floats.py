"""Ops of floats by HVX: sums, differences and products by the units of version 68, and Relu by integers."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.lower.broadcast import collapse
from mace_target_hexagon.isa import KERNELS

OPERATORS: Mapping[str, tuple[str, str]] = {"Add": ("+", "vadd"), "Sub": ("-", "vsub"), "Mul": ("*", "vmpy")}
"""Of C, and the instruction."""


def _need_f32(node: Node, lowering: Lowering) -> None:
    for name in (*node.inputs, *node.outputs):
        if lowering.tensors[name].dtype is not DType.F32:
            raise Refused(f"{name} is {lowering.tensors[name].dtype.value}, not f32", code="dtype")


def lower_binary(node: Node, lowering: Lowering) -> None:
    """Lower a sum, a difference or a product of floats to HVX's units for floats."""
    _need_f32(node, lowering)
    x, y, z = (lowering.tensors[name] for name in (*node.inputs, *node.outputs))
    fields = (("dims", "i32[6]"), ("xs", "i32[6]"), ("ys", "i32[6]"))
    sign, instruction = OPERATORS[node.op.name]
    params = {"sign": Code(sign), "instruction": Code(instruction)}
    kernel = Kernel(f"{node.op.name.lower()}_qf", KERNELS / "binary_qf.c.in", fields, params)
    dims, (xs, ys) = collapse(z.shape, (x.shape, y.shape))
    args = {"dims": dims, "xs": xs, "ys": ys}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs, inplace=True))


def lower_relu(node: Node, lowering: Lowering) -> None:
    """Lower a Relu of floats, which compares their bits."""
    _need_f32(node, lowering)
    kernel = Kernel("relu_floats", KERNELS / "relu_floats.c.in", (("n", "i64"),))
    elements = lowering.tensors[node.outputs[0]].elements
    lowering.call(node, Call(kernel, {"n": elements}, node.inputs, node.outputs, inplace=True))


def estimate(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that about four elements take an instruction, with loads and stores."""
    return lowering.tensors[node.outputs[0]].elements / 4
