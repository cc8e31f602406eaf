"""Softmax of bytes by HVX, with the bits of the CPU's kernels for each rule of `numerics`."""

from __future__ import annotations

from dataclasses import replace

from mace_core.integer_storage import EIGHT_BITS, Scale, need_stored
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_target_cpu.fixed_point import softmax as fixed_point
from mace_target_cpu.quantized import softmax as quantized
from mace_target_hexagon.isa import KERNELS

MAX_ELEMENTS = 1 << 28
"""Of a row: words hold the sums of four bytes of each 128 of its elements."""

MIN_STEP = 2.0**-60
"""Of a result: its reciprocal, and that over a sum, are ordinary floats."""

PACKETS = 350, 210, 125, 25
"""Of a call for its tables, of a row, of each register of it behind the first, and of an element in C."""


def lower_softmax(node: Node, lowering: Lowering) -> None:
    """Lower a softmax along the last axis, by a factor in single precision for each row."""
    x, y = _need_rows(node, lowering)
    if Scale.from_tensor(y).step < MIN_STEP:
        raise Refused("the scale of its result is too small", code="quantization")
    quantized.softmax(node, lowering)
    _take_vectors(lowering, x, y, rule=0)


def lower_fixed_softmax(node: Node, lowering: Lowering) -> None:
    """Lower a softmax along the last axis, by fixed-point numbers."""
    x, y = _need_rows(node, lowering)
    fixed_point.softmax(node, lowering)
    _take_vectors(lowering, x, y, rule=1)


def estimate_vectors(node: Node, lowering: Lowering, level: Level) -> float:
    """Return the packets in those of an element one by one: short rows fill no register."""
    of_call, of_row, of_register, of_element = PACKETS
    x = lowering.tensors[node.inputs[0]]
    rows, registers = x.elements / x.shape[-1], -(-x.shape[-1] // 128)
    return (of_call + rows * (of_row + of_register * (registers - 1))) / of_element


def _need_rows(node: Node, lowering: Lowering) -> tuple[Tensor, Tensor]:
    x, y = (need_stored(lowering, name, EIGHT_BITS) for name in (node.inputs[0], node.outputs[0]))
    if max(x.shape) > MAX_ELEMENTS:
        raise Refused(f"its rows have more than {MAX_ELEMENTS} elements", code="too-large")
    return x, y


def _take_vectors(lowering: Lowering, x: Tensor, y: Tensor, rule: int) -> None:
    """Let the kernel with vectors make the call that was lowered last: tensors and arguments are the same."""
    call = lowering.calls.pop()
    params = {"x_signed": x.dtype is DType.I8, "y_signed": y.dtype is DType.I8, "rule": rule}
    name = f"softmax_bytes_{x.dtype.value}_{y.dtype.value}_{('single', 'fixed')[rule]}"
    kernel = replace(call.kernel, name=name, template=KERNELS / "softmax_bytes.c.in", params=params)
    lowering.calls.append(replace(call, kernel=kernel))
