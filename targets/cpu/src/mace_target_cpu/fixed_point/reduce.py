"""Reductions over quantized tensors."""

from __future__ import annotations

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.reduce import ReduceAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.fixed_point.rules import LIMITS, MULTIPLIER, limits, need_alike
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import reduce as plain
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized import reduce as quantized
from mace_target_cpu.quantized.rounding import SHIFT_LIMIT, refuse_rule, split_factor
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, Scale, need_room

STORED = "store_fixed(multiply_fixed(total - a->offset, a->multiplier, a->shift), a->low, a->high, a->z_zero)"


def mean(node: Node, lowering: Lowering) -> None:
    """ReduceMean: the sum times a multiplier that divides it too."""
    x, y = need_alike(node, lowering, NARROW)
    source = Scale.from_tensor(x)
    if x.dtype is DType.I16 and (source.zero or Scale.from_tensor(y).zero):
        raise refuse_rule(lowering, "the mean of i16 with a zero point is not imitated")
    axes = node.attributes(ReduceAttributes).axes
    count = x.elements // max(1, y.elements)
    need_room(x, count)
    # QuantizedMeanOrSum of kernels/internal/reference/reduce.h: the division keeps as many bits as it can.
    fixed, shift = split_factor(source.step / Scale.from_tensor(y).step)
    bits = min(count.bit_length() - 1, 32, SHIFT_LIMIT + shift)
    args = plain.nest(plain.runs(x.shape, [a % len(x.shape) for a in axes]), x, y)
    args |= {
        "offset": count * source.zero,
        "multiplier": (fixed << bits) // count,
        "shift": shift - bits,
        **limits(y),
    }
    ctype = C_TYPES[x.dtype]
    types = {"ctype": ctype, "result": ctype, "wide": Code("int32_t")}
    params = {**types, "initial": 0, "step": Code("total + v"), "final": Code(STORED)}
    kernel = Kernel(
        f"reducemean_fixed_point_{x.dtype.value}",
        KERNELS / "reduce.c.in",
        (*plain.NEST, ("offset", "i32"), *MULTIPLIER, *LIMITS),
        params,
        (INTEGER, REQUANTIZE),
    )
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: dict[str, Lower] = {
    "ReduceMean": mean,
    **{op: quantized.LOWERINGS[op] for op in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin")},
}
