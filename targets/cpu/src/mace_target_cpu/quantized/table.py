"""Element-wise ops of one operand: of eight bits a table of what each value becomes, exact by construction.

Of sixteen a curve.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_core.quantization import compute
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import binary as plain
from mace_target_cpu.lower.binary import OPS as BINARY
from mace_target_cpu.lower.types import unsigned_type
from mace_target_cpu.lower.unary import OPS as UNARY
from mace_target_cpu.quantized.binary import binary
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, Scale, need_stored

KNOT_BITS = 6
"""Bits of a knot behind the point: with 16 before it and 8 of a place between knots, all fits 32."""


def table(node: Node, lowering: Lowering) -> None:
    """Any element-wise op with one computed operand; its other operands must be constants of one element."""
    x, y = _find_operand(node, lowering), lowering.tensors[node.outputs[0]]
    if y.shape != x.shape:
        raise Refused(f"{y.name} has another shape than {x.name}", code="shape")
    if x.dtype is DType.I16:
        _lower_curve(node, lowering, x, y)
        return
    call_table(node, lowering, (x, y), _compute_table(node, lowering, x, y))


def call_table(node: Node, lowering: Lowering, tensors: tuple[Tensor, Tensor], values: Array) -> None:
    """Append the call of a table of 256 results, in the order of the bits of an element of the operand.

    tensors: the operand and the result.
    """
    x, y = tensors
    kernel = Kernel(
        f"table_{8 * y.dtype.size}",
        KERNELS / "table.c.in",
        (("n", "i64"),),
        {"ytype": unsigned_type(y.dtype.size)},
    )
    name = _share_table(node, lowering, values)
    lowering.call(node, Call(kernel, {"n": x.elements}, [x.name, name], [y.name], inplace=y.dtype.size == 1))


def _find_operand(node: Node, lowering: Lowering) -> Tensor:
    """The one that is computed."""
    computed = {name for name in node.inputs if name and lowering.constant(name) is None}
    others = [name for name in node.inputs if name and name not in computed]
    if len(computed) != 1 or any(lowering.tensors[name].elements != 1 for name in others):
        raise Refused(
            f"{node.op.name} combines several operands; a table holds a function of one", code="quantization"
        )
    return need_stored(lowering, computed.pop(), NARROW)


def _compute_table(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> Array:
    """What each value becomes, in the order of its bits as an unsigned number."""
    # In the order of the bits, which are what the kernel indexes with.
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    inputs = [
        _read_input(name, lowering, replace(x, shape=(256,)), every) if name else None for name in node.inputs
    ]
    (results,) = compute(node.op, node.attrs, inputs, [replace(y, shape=(256,))])
    return results.view(np.uint8) if y.dtype is DType.BOOL else results


def _lower_curve(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    """Straight lines between knots, as few as leave none of the 65536 results a step from the real one.

    Else Refused.
    """
    if y.dtype not in C_TYPES or y.quant is None:
        raise Refused(f"{y.name} is {y.dtype.value}; no curve gives that", code="quantization")
    steps = _compute_steps(node, lowering, x, y)
    # Few knots first: 257 of them are 1 KiB, 4097 are 16 KiB.
    for shift in range(8, 3, -1):
        knots = np.rint(steps[:: 1 << shift] * (1 << KNOT_BITS)).astype(np.int32)
        if np.abs(interpolate(knots, shift) - steps[:-1]).max() < 1:
            break
    else:
        raise Refused(f"{node.op.name} bends too sharply between {len(knots)} knots", code="quantization")
    params = {"ytype": C_TYPES[y.dtype], "bits": KNOT_BITS}
    kernel = Kernel(
        f"curve_{y.dtype.value}", KERNELS / "curve.c.in", (("n", "i64"), ("shift", "i32")), params
    )
    name = _share_table(node, lowering, knots)
    lowering.call(
        node,
        Call(
            kernel, {"n": x.elements, "shift": shift}, [x.name, name], [y.name], inplace=y.dtype is DType.I16
        ),
    )


def _share_table(node: Node, lowering: Lowering, values: Array) -> str:
    """Make a weight of a table, one for all nodes that need the same; returns its name."""
    stem = f"{node.outputs[0]}.table"
    return lowering.once(
        ("table", values.dtype, values.tobytes()),
        lambda: lowering.weight(stem, values.shape, values.dtype.str[1:], lambda: values),
    )


def _compute_steps(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> Array:
    """What each value, and the one behind the last, becomes: in steps of the result, not rounded."""
    source, target, limits = Scale.from_tensor(x), Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
    every = ((np.arange(-(1 << 15), (1 << 15) + 1) - source.zero) * source.step).astype(np.float32)
    inputs = [
        _read_input(name, lowering, replace(x, dtype=DType.F32, shape=every.shape, quant=None), every)
        if name
        else None
        for name in node.inputs
    ]
    # Ops may divide by 0 or overflow at some of the 65536 values; that is refused below.
    with np.errstate(all="ignore"):
        (real,) = compute(
            node.op, node.attrs, inputs, [replace(y, dtype=DType.F32, shape=every.shape, quant=None)]
        )
    if not np.isfinite(real).all():
        raise Refused(f"{node.op.name} is not finite everywhere", code="quantization")
    # What rounds to the ends.
    return np.clip(real.astype(np.float64) / target.step + target.zero, limits.min - 0.49, limits.max + 0.49)


def interpolate(knots: Array, shift: int) -> Array:
    """What the kernel gives for each of the 65536 values."""
    place = np.arange(1 << 16)
    first, rest = knots[place >> shift], place & ((1 << shift) - 1)
    bits = shift + KNOT_BITS
    results: Array = (
        first * (1 << shift) + (knots[(place >> shift) + 1] - first) * rest + (1 << (bits - 1))
    ) >> bits
    return results


def _read_input(name: str, lowering: Lowering, x: Tensor, every: Array) -> tuple[Tensor, Array]:
    constant = lowering.constant(name)
    return (x, every) if constant is None else (lowering.tensors[name], constant)


def table_or_binary(node: Node, lowering: Lowering) -> None:
    """A table where one operand is computed, else the kernel of two.

    The order of numbers stored alike is that of their integers.
    """
    try:
        table(node, lowering)
    except Refused:
        x, y = (lowering.tensors[name] for name in node.inputs)
        if node.op.name in ORDERS and x.quant and x.storage == y.storage:
            plain.binary(node, lowering)
        else:
            binary(node, lowering)


ORDERS = ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")
LOWERINGS: dict[str, Lower] = {
    **dict.fromkeys(sorted(UNARY), table),
    **dict.fromkeys(sorted(BINARY), table_or_binary),
}
