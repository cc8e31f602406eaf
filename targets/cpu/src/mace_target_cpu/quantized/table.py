"""Element-wise ops of one operand: of eight bits a table of what each value becomes, exact by construction.

Of sixteen a curve.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call, Kernel
from mace_core.quantization import compute
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import binary as plain
from mace_target_cpu.lower.binary import OPS as BINARY
from mace_target_cpu.lower.types import unsigned
from mace_target_cpu.lower.unary import OPS as UNARY
from mace_target_cpu.quantized.binary import binary
from mace_target_cpu.quantized.storage import C_TYPES, NARROW, Scale, need_stored

KNOT_BITS = 6
"""Bits of a knot behind the point: with 16 before it and 8 of a place between knots, all fits 32."""


def table(node: Node, to: Lowering) -> None:
    """Any op that makes of every element of one operand one element, whatever its other operands, single constants, are."""
    x, y = _operand(node, to), to.tensors[node.outputs[0]]
    if y.shape != x.shape:
        raise Refused(f"{y.name} has another shape than {x.name}", code="shape")
    if x.dtype is DType.I16:
        _curve(node, to, x, y)
        return
    values = _values(node, to, x, y)
    kernel = Kernel(
        f"table_{8 * y.dtype.size}",
        KERNELS / "table.c.in",
        (("n", "i64"),),
        {"ytype": unsigned(y.dtype.size)},
    )
    name = _shared(node, to, values)
    to.call(node, Call(kernel, {"n": x.elements}, [x.name, name], [y.name], inplace=y.dtype.size == 1))


def _operand(node: Node, to: Lowering) -> Tensor:
    """The one that is computed."""
    computed = {name for name in node.inputs if name and to.constant(name) is None}
    others = [name for name in node.inputs if name and name not in computed]
    if len(computed) != 1 or any(to.tensors[name].elements != 1 for name in others):
        raise Refused(
            f"{node.op.name} combines several operands; a table holds a function of one", code="quantization"
        )
    return need_stored(to, computed.pop(), NARROW)


def _values(node: Node, to: Lowering, x: Tensor, y: Tensor) -> Array:
    """What each value becomes, in the order of its bits as an unsigned number."""
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    inputs = [_input(name, to, replace(x, shape=(256,)), every) if name else None for name in node.inputs]
    (made,) = compute(node.op, node.attrs, inputs, [replace(y, shape=(256,))])
    return made.view(np.uint8) if y.dtype is DType.BOOL else made


def _curve(node: Node, to: Lowering, x: Tensor, y: Tensor) -> None:
    """Straight lines between knots, as few as leave none of the 65536 results a step from the real one.

    Else Refused.
    """
    if y.dtype not in C_TYPES or y.quant is None:
        raise Refused(f"{y.name} is {y.dtype.value}; no curve gives that", code="quantization")
    steps = _steps(node, to, x, y)
    for shift in range(8, 3, -1):
        knots = np.rint(steps[:: 1 << shift] * (1 << KNOT_BITS)).astype(np.int32)
        if np.abs(between(knots, shift) - steps[:-1]).max() < 1:
            break
    else:
        raise Refused(f"{node.op.name} bends too sharply between {len(knots)} knots", code="quantization")
    params = {"ytype": C_TYPES[y.dtype], "bits": KNOT_BITS}
    kernel = Kernel(
        f"curve_{y.dtype.value}", KERNELS / "curve.c.in", (("n", "i64"), ("shift", "i32")), params
    )
    name = _shared(node, to, knots)
    to.call(
        node,
        Call(
            kernel, {"n": x.elements, "shift": shift}, [x.name, name], [y.name], inplace=y.dtype is DType.I16
        ),
    )


def _shared(node: Node, to: Lowering, values: Array) -> str:
    """Make a weight of a table, one for all nodes that need the same; returns its name."""
    stem = f"{node.outputs[0]}.table"
    return to.once(
        ("table", values.dtype, values.tobytes()),
        lambda: to.weight(stem, values.shape, values.dtype.str[1:], lambda: values),
    )


def _steps(node: Node, to: Lowering, x: Tensor, y: Tensor) -> Array:
    """What each value, and the one behind the last, becomes: in steps of the result, not rounded."""
    source, made, limits = Scale.of(x), Scale.of(y), np.iinfo(y.dtype.numpy)
    every = ((np.arange(-(1 << 15), (1 << 15) + 1) - source.zero) * source.step).astype(np.float32)
    inputs = [
        _input(name, to, replace(x, dtype=DType.F32, shape=every.shape, quant=None), every) if name else None
        for name in node.inputs
    ]
    with np.errstate(all="ignore"):
        (real,) = compute(
            node.op, node.attrs, inputs, [replace(y, dtype=DType.F32, shape=every.shape, quant=None)]
        )
    if not np.isfinite(real).all():
        raise Refused(f"{node.op.name} is not finite everywhere", code="quantization")
    # What rounds to the ends.
    return np.clip(real.astype(np.float64) / made.step + made.zero, limits.min - 0.49, limits.max + 0.49)


def between(knots: Array, shift: int) -> Array:
    """What the kernel gives for each of the 65536 values."""
    place = np.arange(1 << 16)
    first, rest = knots[place >> shift], place & ((1 << shift) - 1)
    bits = shift + KNOT_BITS
    found: Array = (
        first * (1 << shift) + (knots[(place >> shift) + 1] - first) * rest + (1 << (bits - 1))
    ) >> bits
    return found


def _input(name: str, to: Lowering, x: Tensor, every: Array) -> tuple[Tensor, Array]:
    constant = to.constant(name)
    return (x, every) if constant is None else (to.tensors[name], constant)


def either(node: Node, to: Lowering) -> None:
    """A table where one operand is computed, else the kernel of two.

    The order of numbers stored alike is that of their integers.
    """
    try:
        table(node, to)
    except Refused:
        x, y = (to.tensors[name] for name in node.inputs)
        if node.op.name in ORDERS and x.quant and x.storage == y.storage:
            plain.binary(node, to)
        else:
            binary(node, to)


ORDERS = ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")
LOWERINGS: dict[str, Lower] = {**dict.fromkeys(sorted(UNARY), table), **dict.fromkeys(sorted(BINARY), either)}
