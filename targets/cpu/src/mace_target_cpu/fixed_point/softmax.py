"""Softmax by gemmlowp's fixed-point numbers."""

from __future__ import annotations

import math

import numpy as np

from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.fixed_point.arithmetic import exp_of_negative, multiply_fixed
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.rounding import refuse_rule, split_factor
from mace_target_cpu.quantized.storage import C_TYPES, EIGHT_BITS, Scale, need_stored

FRACTION = 26
"""Bits behind the point of the distance from the maximum; five lie before it."""

MAX_MULTIPLIER = 2.0**31 - 1
TOLERANCE = 1e-3
"""By which part of 1/256 the scale of the result may differ from it."""


def softmax(node: Node, lowering: Lowering) -> None:
    """Along the last axis, of eight bits to steps of 1/256."""
    x, y = (need_stored(lowering, name, EIGHT_BITS) for name in (node.inputs[0], node.outputs[0]))
    axis = node.attributes(SoftmaxAttributes).axis % len(x.shape)
    if math.prod(x.shape[axis + 1 :]) != 1:
        raise refuse_rule(lowering, "Softmax along an inner axis is not imitated")
    result, lowest = Scale.from_tensor(y), -128 if y.dtype is DType.I8 else 0
    # The kernel gives these steps whatever the result's scale is (kernels/activations.cc, SoftmaxPrepare).
    if result.zero != lowest or abs(result.step * 256 - 1) > TOLERANCE or x.dtype is not y.dtype:
        raise refuse_rule(lowering, f"Softmax to steps of {result.step} from {result.zero} is not imitated")
    table = make_table(Scale.from_tensor(x).step)
    name = lowering.weight(f"{y.name}.table", table.shape, "int32", lambda: table)
    kernel = Kernel(
        f"softmax_fixed_point_{x.dtype.value}",
        KERNELS / "softmax_fixed_point.c.in",
        (("rows", "i64"), ("n", "i32"), ("lowest", "i32")),
        {"ctype": C_TYPES[x.dtype]},
        helpers=(INTEGER, REQUANTIZE),
    )
    n = x.shape[axis]
    args = {"rows": x.elements // max(1, n), "n": n, "lowest": lowest}
    lowering.call(node, Call(kernel, args, [x.name, name], [y.name]))


def make_table(step: float) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return exp(-step * distance) with 31 bits behind the point, for each distance of two elements."""
    # PreprocessSoftmaxScaling and CalculateInputRadius of kernels/internal/quantization_util.cc.
    multiplier, shift = split_factor(min(step * (1 << FRACTION), MAX_MULTIPLIER))
    radius = math.floor(31 * (1 << FRACTION) / (1 << shift))
    powers = [
        exp_of_negative(multiply_fixed(-distance, multiplier, shift), FRACTION) if distance <= radius else 0
        for distance in range(256)
    ]
    return np.array(powers, np.int32)


LOWERINGS: dict[str, Lower] = {"Softmax": softmax}
