"""Transposed convolution."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.program import Call, Kernel, Lowering
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.geometry import GEOMETRY, geometry
from mace_target_cpu.lower.packing import Packing, packed
from mace_target_cpu.lower.types import need_floats

FIELDS = (*GEOMETRY, *((n, "i32") for n in ("groups", "group_in", "group_out")))
KERNEL = Kernel("conv_transpose_f32", KERNELS / "conv_transpose.c.in", FIELDS)


def conv_transpose(node: Node, to: Lowering) -> None:
    """Filters in the order [groups][taps][in][out], so that the innermost loop runs over output channels."""
    need_floats(node, to)
    x, w, *bias = node.inputs
    groups = node.attrs["group"]
    assert isinstance(groups, int)
    shape = to.shape(w)
    columns, depth = shape[0] // groups, prod(shape[1:])
    filters = packed(w, Packing(groups, columns, depth, columns, columns * depth, depth, 1), node, to)
    args = {**geometry(node, to), "groups": groups, "group_in": shape[-1], "group_out": columns}
    to.call(node, Call(KERNEL, args, [x, filters, bias[0] if bias else ""], node.outputs))


LOWERINGS: Mapping[str, Lower] = {"ConvTranspose": conv_transpose}
