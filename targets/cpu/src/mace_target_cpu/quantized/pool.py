"""Pools over quantized tensors.

MaxPool needs no lowering here: scales are positive, so the largest stored integer stands for the largest
number.
"""

from __future__ import annotations

import math

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.pool import AveragePoolAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.lower.conv import GEOMETRY, geometry, spatial
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.conv import PLAIN_DEPTHWISE
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, RESULT, Scale, need_room, need_stored, result

FIELDS = (*GEOMETRY, ("after", "i32[3]"), ("count_pad", "i32"), ("factor", "f32"), ("x_zero", "i32"), *RESULT)


def average(node: Node, lowering: Lowering) -> None:
    """An exact sum of each window, rounded once."""
    x, y = (
        need_stored(lowering, node.inputs[0], NARROW),
        need_stored(lowering, node.outputs[0], tuple(C_TYPES)),
    )
    attrs = node.attributes(AveragePoolAttributes)
    # The sum of a window must fit 32 bits.
    need_room(x, math.prod(attrs.kernel))
    args = {
        **geometry(x, y, attrs.windows(len(x.shape) - 2)),
        "after": spatial(attrs.pads_after, 0),
        "count_pad": attrs.count_pad,
        "factor": Scale.from_tensor(x).step / Scale.from_tensor(y).step,
        "x_zero": Scale.from_tensor(x).zero,
        **result(y),
    }
    params = {"xtype": C_TYPES[x.dtype], "ytype": C_TYPES[y.dtype], "average": True}
    name = f"average_pool_{x.dtype.value}_{y.dtype.value}"
    lowering.call(
        node,
        Call(
            Kernel(name, PLAIN_DEPTHWISE, FIELDS, params, helpers=(INTEGER, REQUANTIZE)),
            args,
            node.inputs,
            node.outputs,
        ),
    )


LOWERINGS: dict[str, Lower] = {"AveragePool": average}
