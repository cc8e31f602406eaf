"""Products, maxima and minima of bytes that broadcast by HVX, with the bits of the CPU's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.integer_storage import EIGHT_BITS, Scale, need_stored
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.fixed_point import binary as fixed_point
from mace_target_cpu.lower.broadcast import PAIR, pair_args
from mace_target_cpu.quantized import binary as quantized
from mace_target_cpu.quantized.storage import result
from mace_target_hexagon.isa import KERNELS

SCRATCH = 2 * (4096 + 128)
"""Two runs of bytes: 2 * ROWS_SPARE of kernels/rows.h.in."""

ROWS = KERNELS / "rows.h.in"
MAX_EXPONENT = 100
"""Scales and their products lie between 2 to the power of minus this and of this, where floats are normal."""

Tensors = tuple[Tensor, Tensor, Tensor]


def lower_product(node: Node, lowering: Lowering) -> None:
    """Lower a product, by a factor in single precision."""
    tensors = _need_bytes(node, lowering)
    quantized.binary(node, lowering)
    call = lowering.calls.pop()
    x_scale, y_scale, inverse = (_round(call, name) for name in ("x_scale", "y_scale", "inverse"))
    factor = x_scale * y_scale * inverse
    ordinary = (2.0**-MAX_EXPONENT, 2.0**MAX_EXPONENT)
    if not all(ordinary[0] < f < ordinary[1] for f in (x_scale, y_scale, inverse, x_scale * y_scale, factor)):
        raise Refused("its scales are beyond what floats multiply with all their bits", code="quantization")
    _call(node, lowering, replace(call, args={**call.args, "factor": factor}), tensors)


def lower_fixed_product(node: Node, lowering: Lowering) -> None:
    """Lower a product, by a multiplier and a shift."""
    _lower_fixed(node, lowering, fixed_point.multiply)


def lower_fixed_sum(node: Node, lowering: Lowering) -> None:
    """Lower a sum or a difference, by multipliers and shifts."""
    _lower_fixed(node, lowering, fixed_point.add_or_subtract)


def lower_extreme(node: Node, lowering: Lowering) -> None:
    """Lower a maximum or a minimum; its tensors may have different scales."""
    x, y, z = tensors = _need_bytes(node, lowering)
    has_tables = len({t.storage for t in tensors}) > 1
    kind = node.op.name
    params = {"is_max": kind == "Maximum", "z_signed": z.dtype is DType.I8, "has_tables": has_tables}
    reads = [*node.inputs]
    if has_tables:
        tables = np.stack([convert_every_byte(t, z) for t in (x, y)])
        reads.append(lowering.weight(f"{z.name}.tables", tables.shape, "uint8", lambda: tables))
    name = f"{kind.lower()}_bytes_{z.dtype.value}{'_tables' if has_tables else ''}"
    kernel = Kernel(name, KERNELS / "extreme_bytes.c.in", PAIR, params, (ROWS,))
    lowering.call(node, Call(kernel, pair_args(x, y, z), reads, node.outputs, scratch=SCRATCH))


def lower_fixed_extreme(node: Node, lowering: Lowering) -> None:
    """Lower a maximum or a minimum of one scale."""
    fixed_point.extreme(node, lowering)
    lowering.calls.pop()
    lower_extreme(node, lowering)


def convert_every_byte(x: Tensor, z: Tensor) -> Array:
    """Return what each byte of x is as an element of z, by the steps of binary_quantized.c.in."""
    source, limits = Scale.from_tensor(x), result(z)
    numbers = np.arange(256).astype(np.uint8).view(x.dtype.numpy).astype(np.int32)
    real = (numbers - source.zero).astype(np.float32) * np.float32(source.step)
    steps = np.clip(real * np.float32(1 / Scale.from_tensor(z).step), limits["low"], limits["high"])
    elements: Array = (np.rint(steps).astype(np.int32) + Scale.from_tensor(z).zero).astype(np.uint8)
    return elements


def estimate(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that an instruction of HVX computes about two elements."""
    return lowering.tensors[node.outputs[0]].elements / 2


def _round(call: Call, name: str) -> float:
    """Return an argument as the kernel has it, in single precision."""
    value = call.args[name]
    assert isinstance(value, float)
    return float(np.float32(value))


def _lower_fixed(node: Node, lowering: Lowering, lower: Lower) -> None:
    tensors = _need_bytes(node, lowering)
    lower(node, lowering)
    _call(node, lowering, lowering.calls.pop(), tensors)


def _need_bytes(node: Node, lowering: Lowering) -> Tensors:
    x, y, z = (need_stored(lowering, name, EIGHT_BITS) for name in (*node.inputs, *node.outputs))
    for tensor in (x, y, z):
        limits = np.iinfo(tensor.dtype.numpy)
        # Kernels take zero points from bytes as bytes.
        if not limits.min <= Scale.from_tensor(tensor).zero <= limits.max:
            raise Refused(f"the zero point of {tensor.name} is not of its type", code="quantization")
    return x, y, z


def _call(node: Node, lowering: Lowering, call: Call, tensors: Tensors) -> None:
    """Let the kernel with vectors make a call of the CPU's: tensors and arguments are the same."""
    is_single = "factor" in call.args
    roles = zip(("x", "y", "z"), tensors, strict=True)
    signs = {f"{role}_signed": t.dtype is DType.I8 for role, t in roles}
    params = {**signs, "rule": 0 if is_single else 1, "kind": node.op.name}
    types = "_".join(t.dtype.value for t in tensors)
    name = f"{node.op.name.lower()}_bytes_{types}_{'single' if is_single else 'fixed'}"
    fields = (*call.kernel.fields, ("factor", "f32")) if is_single else call.kernel.fields
    kernel = Kernel(name, KERNELS / "binary_bytes.c.in", fields, params, (ROWS,))
    lowering.call(node, Call(kernel, call.args, node.inputs, node.outputs, scratch=SCRATCH))


LOWERINGS: Mapping[str, Lower] = {"Mul": lower_product, "Maximum": lower_extreme, "Minimum": lower_extreme}
FIXED_POINT: Mapping[str, Lower] = {
    "Add": lower_fixed_sum,
    "Sub": lower_fixed_sum,
    "Mul": lower_fixed_product,
    "Maximum": lower_fixed_extreme,
    "Minimum": lower_fixed_extreme,
}
"""By op, for `numerics: tflite-reference`."""
