"""Transposed convolution: an ordinary one where possible, else a kernel of its own.

Ordinary where the weights are constant and the axes divide (see subpixel.py): the matrix kernel is then
several times as fast as gathering inputs for each output.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.conv_transpose import ConvTransposeAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import movement
from mace_target_cpu.lower.conv import conv
from mace_target_cpu.lower.geometry import GEOMETRY, geometry
from mace_target_cpu.lower.packing import MatrixPacking, pack_weights
from mace_target_cpu.lower.subpixel import convolution
from mace_target_cpu.lower.types import need_type, operands
from mace_target_cpu.lower.view import view

FIELDS = (*GEOMETRY, *((n, "i32") for n in ("groups", "group_in", "group_out")))
KERNEL = Kernel("conv_transpose_f32", KERNELS / "conv_transpose.c.in", FIELDS)


def conv_transpose(node: Node, lowering: Lowering) -> None:
    """Lower any transposed convolution of f32."""
    need_type(node, *operands(node, lowering))
    # Refused says that no ordinary convolution does it: computed weights, or strides with dilations.
    try:
        parts = list(convolution(node, lowering))
    except Refused:
        _lower_direct(node, lowering)
        return
    for part in parts:
        PARTS[part.op.name](part, lowering)


def _lower_direct(node: Node, lowering: Lowering) -> None:
    """Lower it with filters [groups][taps][in][out]: the innermost loop runs over output channels."""
    x, w, *bias = node.inputs
    groups = node.attributes(ConvTransposeAttributes).group
    shape = lowering.shape(w)
    # Weights are [outputs, kernel, inputs / group]; panels as wide as a group make [taps][in][out] of them.
    columns, depth = shape[0] // groups, prod(shape[1:])
    filters = pack_weights(
        w, MatrixPacking(groups, columns, depth, columns, columns * depth, depth, 1), node, lowering
    )
    args = {**geometry(node, lowering), "groups": groups, "group_in": shape[-1], "group_out": columns}
    lowering.call(node, Call(KERNEL, args, [x, filters, bias[0] if bias else ""], node.outputs))


PARTS: Mapping[str, Lower] = {"Conv": conv, "Reshape": view, **movement.LOWERINGS}
LOWERINGS: Mapping[str, Lower] = {"ConvTranspose": conv_transpose}
