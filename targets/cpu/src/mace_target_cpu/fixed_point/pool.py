"""Pools: the mean of stored integers, divided as integers are."""

from __future__ import annotations

import math

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.pool import AveragePoolAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.fixed_point.rules import need_alike, need_one_storage
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.conv import GEOMETRY, geometry
from mace_target_cpu.quantized.rounding import refuse_rule
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, need_room


def average(node: Node, lowering: Lowering) -> None:
    """The sum of what each window sees of the image, divided by its number, a half away from 0."""
    x, y = need_alike(node, lowering, NARROW)
    need_one_storage(node, lowering, (x, y))
    attrs = node.attributes(AveragePoolAttributes)
    if attrs.count_pad:
        raise refuse_rule(lowering, "a mean that counts its padding is not imitated")
    need_room(x, math.prod(attrs.kernel))
    kernel = Kernel(
        f"average_fixed_point_{x.dtype.value}",
        KERNELS / "average_fixed_point.c.in",
        GEOMETRY,
        {"ctype": C_TYPES[x.dtype]},
    )
    args = geometry(x, y, attrs.windows(len(x.shape) - 2))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: dict[str, Lower] = {"AveragePool": average}
