"""Reductions over quantized tensors."""

from __future__ import annotations

from mace_core.emit.text import Code
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.reduce import ReduceAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import reduce as plain
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, Scale, need_room, need_stored, result

FIELDS = (("offset", "i32"), ("factor", "f32"), ("low", "f32"), ("high", "f32"), ("y_zero", "i32"))
STORED = "(int32_t)rintf(fminf(fmaxf((float)(total - a->offset) * a->factor, a->low), a->high)) + a->y_zero"


def total(node: Node, lowering: Lowering) -> None:
    """ReduceSum and ReduceMean: an exact sum, rounded once."""
    x, y = (
        need_stored(lowering, node.inputs[0], NARROW),
        need_stored(lowering, node.outputs[0], tuple(C_TYPES)),
    )
    axes, source, target = node.attributes(ReduceAttributes).axes, Scale.from_tensor(x), Scale.from_tensor(y)
    count = x.elements // max(1, y.elements)
    need_room(x, count)
    args = plain.nest(plain.runs(x.shape, [a % len(x.shape) for a in axes]), x, y)
    # One factor: the mean's division and both scales are one rounding.
    factor = source.step / target.step / (count if node.op.name == "ReduceMean" else 1)
    args |= {"offset": count * source.zero, "factor": factor, **result(y)}
    args.pop("y_type")
    types = {"ctype": C_TYPES[x.dtype], "result": C_TYPES[y.dtype], "wide": Code("int32_t")}
    params = {**types, "initial": 0, "step": Code("total + v"), "final": Code(STORED)}
    name = f"reducesum_{x.dtype.value}_{y.dtype.value}"
    kernel = Kernel(name, KERNELS / "reduce.c.in", (*plain.NEST, *FIELDS), params, (plain.MATH,))
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def extreme(node: Node, lowering: Lowering) -> None:
    """ReduceMax and ReduceMin: the order of real numbers is that of what stores them."""
    if lowering.tensors[node.inputs[0]].storage != lowering.tensors[node.outputs[0]].storage:
        raise Refused("its result is stored otherwise than its operand", code="quantization")
    plain.reduce(node, lowering)


LOWERINGS: dict[str, Lower] = {
    "ReduceSum": total,
    "ReduceMean": total,
    "ReduceMax": extreme,
    "ReduceMin": extreme,
    "ArgMax": plain.arg,
    "ArgMin": plain.arg,
}
