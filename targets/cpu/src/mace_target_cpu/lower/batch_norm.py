"""BatchNorm as one factor and one summand a channel."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.batch_norm import fold_moments
from mace_core.ops.norm import EpsilonAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower.plain import compose
from mace_target_cpu.lower.softmax import chunk

FEW = 32
"""Channels below which a kernel takes several pixels as one row, to fill its vectors."""
APPLY = Kernel(
    "batch_norm_f32",
    KERNELS / "batch_norm.c.in",
    (("n", "i64"), ("period", "i32"), ("chunk", "i32"), ("tasks", "i32")),
)
FOLD = Kernel(
    "batch_norm_fold_f32",
    KERNELS / "batch_norm_fold.c.in",
    (("channels", "i32"), ("period", "i32"), ("epsilon", "f32")),
)


def period(channels: int) -> int:
    """Floats that make a row: whole pixels, and where their channels are few, whole vectors."""
    if not 0 < channels < FEW:
        return max(channels, 1)
    # The least common multiple: a row of whole pixels that is whole vectors on every level.
    pixel_floats = channels * MAX_LANES // gcd(channels, MAX_LANES)
    return pixel_floats * -(-FEW // pixel_floats)


def batch_norm(node: Node, lowering: Lowering) -> None:
    """Fold the vectors when the library is built if they are constants, else by a kernel of its own."""
    x = lowering.tensors[node.inputs[0]]
    if x.dtype is not DType.F32:
        compose(node, lowering)
        return
    channels, width = x.shape[-1], period(x.shape[-1])
    epsilon = node.attributes(EpsilonAttributes).epsilon
    constants = [lowering.constant(name) for name in node.inputs[1:]]
    vectors = [v for v in constants if v is not None]

    def make() -> Array:
        return np.stack([np.resize(v, width) for v in fold_moments(*vectors, epsilon=epsilon)]).astype(
            np.float32
        )

    if len(vectors) == len(constants):
        table = lowering.weight(f"{node.name}_folded", (2, width), "float32", make)
    else:
        table = lowering.temporary(Tensor(f"{node.name}_folded", DType.F32, (2, width)))
        lowering.call(
            node,
            Call(FOLD, {"channels": channels, "period": width, "epsilon": epsilon}, node.inputs[1:], [table]),
        )
    # Rows of `period` floats, not pixels: few channels would make tasks of a few bytes.
    shares = chunk(-(-x.elements // width), width)
    args = {"n": x.elements, "period": width, **shares}
    # A result as large as a table that is computed would take its place, and every row reads the table.
    inplace = table in lowering.weights or x.elements != 2 * width
    lowering.call(node, Call(APPLY, args, [node.inputs[0], table], node.outputs, inplace=inplace))


LOWERINGS: Mapping[str, Lower] = {"BatchNorm": batch_norm}
