"""Ops of floats by HVX: sums, differences and products by the units of version 68, and Relu by integers."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lowering
from mace_core.program import Call, Kernel
from mace_target_cpu.lower.broadcast import PAIR, pair_args
from mace_target_cpu.lower.types import need_type
from mace_target_hexagon.isa import KERNELS

OPERATORS: Mapping[str, tuple[str, str]] = {"Add": ("+", "vadd"), "Sub": ("-", "vsub"), "Mul": ("*", "vmpy")}
"""Of C, and the instruction."""


def lower_binary(node: Node, lowering: Lowering) -> None:
    """Lower a sum, a difference or a product of floats to HVX's units for floats."""
    x, y, z = (lowering.tensors[name] for name in (*node.inputs, *node.outputs))
    need_type(node, x, y, z)
    sign, instruction = OPERATORS[node.op.name]
    params = {"sign": Code(sign), "instruction": Code(instruction)}
    kernel = Kernel(f"{node.op.name.lower()}_qf", KERNELS / "binary_qf.c.in", PAIR, params)
    lowering.call(node, Call(kernel, pair_args(x, y, z), node.inputs, node.outputs, inplace=True))


def lower_relu(node: Node, lowering: Lowering) -> None:
    """Lower a Relu of floats, which compares their bits."""
    x = lowering.tensors[node.inputs[0]]
    need_type(node, x)
    kernel = Kernel("relu_floats", KERNELS / "relu_floats.c.in", (("n", "i64"),))
    lowering.call(node, Call(kernel, {"n": x.elements}, node.inputs, node.outputs, inplace=True))


def estimate(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that about four elements take an instruction, with loads and stores."""
    return lowering.tensors[node.outputs[0]].elements / 4
