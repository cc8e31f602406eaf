"""Add, Sub and Mul of two quantized operands."""

from __future__ import annotations

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.fixed_point.rules import (
    LIMITS,
    MULTIPLIER,
    limits,
    multiplier,
    need_alike,
    need_one_storage,
)
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import binary as plain
from mace_target_cpu.lower.broadcast import PAIR, pair_args
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.rounding import refuse_rule, split_factor
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, Scale

DIMENSIONS = (*PAIR, ("x_zero", "i32"), ("y_zero", "i32"))
SUM = ("left", "x_multiplier", "x_shift", "y_multiplier", "y_shift")
TEMPLATE = KERNELS / "binary_fixed_point.c.in"


def add_or_subtract(node: Node, lowering: Lowering) -> None:
    """Both operands to one scale with bits to spare, their sum to the scale of the result."""
    x, y, z = need_alike(node, lowering, NARROW)
    if x.dtype is DType.I16 and any(Scale.from_tensor(t).zero for t in (x, y, z)):
        raise refuse_rule(lowering, f"{node.op.name} of i16 with a zero point is not imitated")
    # LiteRT: Prepare of kernels/add.cc and PrepareGeneralSubOp of kernels/sub.cc. The larger scale is twice
    # as large in single precision, the quotients have double precision.
    left = 15 if x.dtype is DType.I16 else 20
    x_step, y_step, z_step = (np.float32(Scale.from_tensor(t).step) for t in (x, y, z))
    twice = float(np.float32(2) * max(x_step, y_step))
    out_factor = twice / float(np.float32(1 << left) * z_step)
    if node.op.name == "Add" and out_factor >= 1:
        raise refuse_rule(
            lowering, "LiteRT adds no numbers whose scale is that much larger than the result's"
        )
    fields = [*DIMENSIONS, *((name, "i32") for name in SUM), *MULTIPLIER, *LIMITS]
    (x_multiplier, x_shift), (y_multiplier, y_shift) = (
        split_factor(float(s) / twice) for s in (x_step, y_step)
    )
    scaling: dict[str, Arg] = {
        "left": left,
        "x_multiplier": x_multiplier,
        "x_shift": x_shift,
        "y_multiplier": y_multiplier,
        "y_shift": y_shift,
        **multiplier(out_factor),
    }
    kernel = Kernel(
        f"{node.op.name.lower()}_fixed_point_{x.dtype.value}",
        TEMPLATE,
        tuple(fields),
        {
            "ctype": C_TYPES[x.dtype],
            "kind": node.op.name,
            "sign": Code("+" if node.op.name == "Add" else "-"),
        },
        helpers=(INTEGER, REQUANTIZE),
    )
    lowering.call(
        node, Call(kernel, {**_dimensions(x, y, z), **scaling, **limits(z)}, node.inputs, node.outputs)
    )


def multiply(node: Node, lowering: Lowering) -> None:
    """The product of both integers, to the scale of the result."""
    x, y, z = need_alike(node, lowering, NARROW)
    # Prepare of kernels/mul.cc computes this in single precision.
    x_step, y_step, z_step = (np.float32(Scale.from_tensor(t).step) for t in (x, y, z))
    kernel = Kernel(
        f"mul_fixed_point_{x.dtype.value}",
        TEMPLATE,
        (*DIMENSIONS, *MULTIPLIER, *LIMITS),
        {"ctype": C_TYPES[x.dtype], "kind": "Mul", "sign": Code("*")},
        helpers=(INTEGER, REQUANTIZE),
    )
    args = {**_dimensions(x, y, z), **multiplier(float(x_step * y_step / z_step)), **limits(z)}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def extreme(node: Node, lowering: Lowering) -> None:
    """Maximum and Minimum of one scale: the order of numbers is that of what stores them."""
    need_one_storage(node, lowering, need_alike(node, lowering, NARROW))
    plain.binary(node, lowering)


def _dimensions(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Arg]:
    zeros = {"x_zero": Scale.from_tensor(x).zero, "y_zero": Scale.from_tensor(y).zero}
    return {**pair_args(x, y, z), **zeros}


LOWERINGS: dict[str, Lower] = {
    "Add": add_or_subtract,
    "Sub": add_or_subtract,
    "Mul": multiply,
    "Maximum": extreme,
    "Minimum": extreme,
}
