"""Element-wise ops over quantized tensors, Quantize and Dequantize."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.emit.integer_expressions import COMPARISON
from mace_core.emit.text import CIdentifier, Code
from mace_core.integer_storage import EIGHT_BITS, NARROW, Scale, need_stored
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.quantization import compute
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.lower import binary as plain
from mace_target_opencl.lower.gather import Gathering, enqueue_gathering
from mace_target_opencl.lower.maps import Map, enqueue_map
from mace_target_opencl.lower.movement import view
from mace_target_opencl.lower.unary import OPS as UNARY
from mace_target_opencl.quantized.storage import StepRange, single, spell_real, spell_store
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import FLOAT, INT, storage_type
from mace_target_opencl.views import View

KNOT_BITS = 6
"""Bits of a knot behind the point: with 16 before it and 8 of a place between knots, all fits 32."""

EXACT_BINARY = ("Add", "Sub", "Mul", "Minimum", "Maximum", "PRelu")
"""Ops whose expressions round alike on every device."""


def quantize(node: Node, lowering: Lowering) -> None:
    """Store floats as integers, or integers otherwise."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if x.storage == y.storage:
        view(node, lowering)
        return
    if x.quant and x.dtype in EIGHT_BITS:
        look_up(node, lowering)
        return
    if x.dtype not in (DType.F32, *NARROW) or y.dtype not in NARROW:
        # Numbers of 32 bits need double precision, which few GPUs have.
        reason = f"no OpenCL kernel stores {x.dtype.value} as {y.dtype.value}"
        raise Refused(reason, code="quantization", remedy="use eight or sixteen bits")
    target = Scale.from_tensor(y)
    if x.quant is None:
        # A quotient: frameworks divide, and with a product by 1 / scale ties would fall to the other side.
        steps = f"mace_divide(x, {single(target.step)})"
    else:
        source = Scale.from_tensor(x)
        steps = f"(float)((int)x - ({source.zero})) * {single(source.step / target.step)}"
    _enqueue_exact(node, lowering, spell_store(steps, y, StepRange.from_result(y)))


def dequantize(node: Node, lowering: Lowering) -> None:
    """Compute the real numbers of stored integers."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.quant:
        quantize(node, lowering)
        return
    if x.quant is None:
        view(node, lowering)
        return
    if x.dtype not in NARROW:
        reason = f"no OpenCL kernel reads {x.dtype.value} as real numbers"
        raise Refused(reason, code="quantization", remedy="use eight or sixteen bits")
    _enqueue_exact(node, lowering, ElementStep(Code(spell_real("x", x)), (None,), FLOAT))


def _enqueue_exact(node: Node, lowering: Lowering, step: ElementStep) -> None:
    x = lowering.tensors[node.inputs[0]]
    enqueue_map(lowering, node, Map(x.name, View.of([(x.elements, 1)]), (step,), exact=True))


def look_up(node: Node, lowering: Lowering) -> None:
    """Compute any element-wise op with one computed operand, by a table of the results of all values."""
    x, y = _find_operand(node, lowering), lowering.tensors[node.outputs[0]]
    if y.shape != x.shape:
        raise Refused(f"{y.name} has another shape than {x.name}", code="shape")
    if x.dtype is DType.I16:
        _enqueue_curve(node, lowering, x, y)
        return
    # In the order of the bits: a negative index of Gather counts from the end, as two's complement does.
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    inputs = [_read(name, lowering, replace(x, shape=(256,)), every) for name in node.inputs]
    (values,) = compute(node.op, node.attrs, inputs, [replace(y, shape=(256,))])
    table = lowering.once(
        ("table", values.dtype.str, values.tobytes()),
        lambda: lowering.add_folded(f"{y.name}.table", np.ascontiguousarray(values)),
    )
    count = x.elements
    gathering = Gathering(View.of([(count, 0)]), View.of([(count, 1)]), [(256, 1)])
    enqueue_gathering(lowering, node, gathering, (table, x.name))


def _find_operand(node: Node, lowering: Lowering) -> Tensor:
    """Return the operand that is computed; raises Refused unless it is one, and others have one element."""
    computed = {name for name in node.inputs if name and lowering.constant(name) is None}
    others = [name for name in node.inputs if name and name not in computed]
    if len(computed) != 1 or any(lowering.tensors[name].elements != 1 for name in others):
        reason = f"{node.op.name} combines several operands; a table holds a function of one"
        raise Refused(reason, code="quantization")
    return need_stored(lowering, computed.pop(), NARROW)


def _read(name: str, lowering: Lowering, x: Tensor, every: Array) -> tuple[Tensor, Array] | None:
    """Return an operand for the computation of a table: each value of x, or a constant."""
    if not name:
        return None
    constant = lowering.constant(name)
    return (x, every) if constant is None else (lowering.tensors[name], constant)


def _enqueue_curve(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    """Append the call that draws straight lines between knots of a function of sixteen bits."""
    if y.dtype not in NARROW or y.quant is None:
        raise Refused(f"{y.name} is {y.dtype.value}; no curve gives that", code="quantization")
    results = _compute_steps(node, lowering, x, y)
    for shift in range(8, 3, -1):
        knots = np.rint(results[:: 1 << shift] * (1 << KNOT_BITS)).astype(np.int32)
        if np.abs(_interpolate(knots, shift) - results[:-1]).max() < 1:
            break
    else:
        raise Refused(f"{node.op.name} bends too sharply between {len(knots)} knots", code="quantization")
    table = lowering.once(("curve", knots.tobytes()), lambda: lowering.add_folded(f"{y.name}.knots", knots))
    constants = {"count": x.elements, "shift": shift, "bits": KNOT_BITS, "value_type": storage_type(y)}
    reads = {"x": x.name, "knots": table}
    launch = Launch("curve", reads, {"y": y.name}, (x.elements,), constants, (GROUP,), (), {"knots": INT})
    enqueue(lowering, node, launch)


def _compute_steps(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> Array:
    """Return what each value, and the one behind the last, becomes: in steps of the result, not rounded."""
    source, target, limits = Scale.from_tensor(x), Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
    every = ((np.arange(-(1 << 15), (1 << 15) + 1) - source.zero) * source.step).astype(np.float32)
    described = Tensor(x.name, DType.F32, every.shape)
    inputs = [_read(name, lowering, described, every) for name in node.inputs]
    # Ops may divide by 0 or overflow at some of the 65536 values; that is refused below.
    with np.errstate(all="ignore"):
        (real,) = compute(node.op, node.attrs, inputs, [Tensor(y.name, DType.F32, every.shape)])
    if not np.isfinite(real).all():
        raise Refused(f"{node.op.name} is not finite everywhere", code="quantization")
    steps = real.astype(np.float64) / target.step + target.zero
    return np.asarray(np.clip(steps, limits.min - 0.49, limits.max + 0.49))


def _interpolate(knots: Array, shift: int) -> Array:
    """Return what the kernel computes for each of the 65536 values."""
    place = np.arange(1 << 16)
    first, rest = knots[place >> shift], place & ((1 << shift) - 1)
    bits = shift + KNOT_BITS
    line = first * (1 << shift) + (knots[(place >> shift) + 1] - first) * rest
    return np.asarray((line + (1 << (bits - 1))) >> bits)


def binary(node: Node, lowering: Lowering) -> None:
    """Compute sums, products and extremes of real numbers in registers, rounded once to what is stored."""
    x, y, z = (lowering.tensors[name] for name in (*node.inputs, *node.outputs))
    if node.op.name not in EXACT_BINARY or any(t.dtype not in (DType.F32, *NARROW) for t in (x, y, z)):
        types = f"{x.dtype.value} and {y.dtype.value} to {z.dtype.value}"
        raise Refused(f"no integer kernel computes {node.op.name} of {types}", code="quantization")
    limits = StepRange.from_result(z)
    expression = re.sub(r"\by\b", spell_real("y", y), plain.FLOAT[node.op.name])
    other = Lookup(CIdentifier("other"), View.broadcast(y.shape, z.shape))
    inverse = single(1 / Scale.from_tensor(z).step)
    steps = (
        ElementStep(Code(spell_real("x", x)), (None,), FLOAT),
        ElementStep(Code(expression), (None, other), FLOAT),
        spell_store(f"x * {inverse}", z, limits),
    )
    mapping = Map(x.name, View.broadcast(x.shape, z.shape), steps, {"other": y.name}, exact=True)
    enqueue_map(lowering, node, mapping)


def look_up_or_combine(node: Node, lowering: Lowering) -> None:
    """Compute by a table where one operand is computed, else as real numbers.

    The order of numbers that are stored alike is that of their integers.
    """
    try:
        look_up(node, lowering)
    except Refused:
        x, y = (lowering.tensors[name] for name in node.inputs)
        if node.op.name in COMPARISON and x.quant and x.storage == y.storage:
            plain.binary(node, lowering)
        else:
            binary(node, lowering)


LOWERINGS: Mapping[str, Lower] = {
    "Quantize": quantize,
    "Dequantize": dequantize,
    **dict.fromkeys(sorted(UNARY), look_up),
    **dict.fromkeys(sorted(plain.OPS), look_up_or_combine),
}
