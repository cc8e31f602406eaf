"""Transposed convolution: as an ordinary one where the weights are constant and the axes divide, else by a kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import movement
from mace_target_cpu.lower.conv import conv
from mace_target_cpu.lower.geometry import GEOMETRY, geometry
from mace_target_cpu.lower.packing import Packing, packed
from mace_target_cpu.lower.subpixel import convolution
from mace_target_cpu.lower.types import need_floats
from mace_target_cpu.lower.view import view

FIELDS = (*GEOMETRY, *((n, "i32") for n in ("groups", "group_in", "group_out")))
KERNEL = Kernel("conv_transpose_f32", KERNELS / "conv_transpose.c.in", FIELDS)


def conv_transpose(node: Node, to: Lowering) -> None:
    """Any transposed convolution of f32."""
    need_floats(node, to)
    try:
        parts = list(convolution(node, to))
    except Refused:
        _direct(node, to)
        return
    for part in parts:
        PARTS[part.op.name](part, to)


def _direct(node: Node, to: Lowering) -> None:
    """Filters in the order [groups][taps][in][out], so that the innermost loop runs over output channels."""
    x, w, *bias = node.inputs
    groups = node.attributes(ConvTransposeAttributes).group
    shape = to.shape(w)
    columns, depth = shape[0] // groups, prod(shape[1:])
    filters = packed(w, Packing(groups, columns, depth, columns, columns * depth, depth, 1), node, to)
    args = {**geometry(node, to), "groups": groups, "group_in": shape[-1], "group_out": columns}
    to.call(node, Call(KERNEL, args, [x, filters, bias[0] if bias else ""], node.outputs))


PARTS: Mapping[str, Lower] = {"Conv": conv, "Reshape": view, **movement.LOWERINGS}
LOWERINGS: Mapping[str, Lower] = {"ConvTranspose": conv_transpose}
