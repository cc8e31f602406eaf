"""Element-wise ops over quantized tensors, Quantize and Dequantize."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mace_core.emit.integer_expressions import COMPARISON
from mace_core.emit.text import CIdentifier, Code
from mace_core.integer_storage import EIGHT_BITS, NARROW, Scale
from mace_core.integer_tables import KNOT_BITS, compute_table, find_operand, fit_curve
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
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
    x, y = find_operand(node, lowering), lowering.tensors[node.outputs[0]]
    if x.dtype is DType.I16:
        _enqueue_curve(node, lowering, x, y)
        return
    # In the order of the bits: a negative index of Gather counts from the end, as two's complement does.
    values = compute_table(node, lowering, x)
    table = lowering.once(
        ("table", values.dtype.str, values.tobytes()),
        lambda: lowering.add_folded(f"{y.name}.table", values),
    )
    count = x.elements
    gathering = Gathering(View.of([(count, 0)]), View.of([(count, 1)]), [(256, 1)])
    enqueue_gathering(lowering, node, gathering, (table, x.name))


def _enqueue_curve(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    """Append the call that draws straight lines between knots of a function of sixteen bits."""
    curve = fit_curve(node, lowering, x)
    table = lowering.once(
        ("curve", curve.knots.tobytes()), lambda: lowering.add_folded(f"{y.name}.knots", curve.knots)
    )
    constants = {"count": x.elements, "shift": curve.shift, "bits": KNOT_BITS, "value_type": storage_type(y)}
    reads = {"x": x.name, "knots": table}
    launch = Launch("curve", reads, {"y": y.name}, (x.elements,), constants, (GROUP,), (), {"knots": INT})
    enqueue(lowering, node, launch)


def binary(node: Node, lowering: Lowering) -> None:
    """Compute sums, products and extremes of real numbers in registers, rounded once to what is stored."""
    x, y, z = (lowering.tensors[name] for name in (*node.inputs, *node.outputs))
    if node.op.name not in EXACT_BINARY or any(t.dtype not in (DType.F32, *NARROW) for t in (x, y, z)):
        types = f"{x.dtype.value} and {y.dtype.value} to {z.dtype.value}"
        raise Refused(f"no integer kernel computes {node.op.name} of {types}", code="quantization")
    limits = StepRange.from_result(z)
    expression = re.sub(r"\by\b", spell_real("y", y), plain.FLOAT[node.op.name])
    other = Lookup(CIdentifier("other"), View.broadcast(y.shape, z.shape))
    # A product and no quotient, as in the CPU's kernel: the bits are compared.
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
