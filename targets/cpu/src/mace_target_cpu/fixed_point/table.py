"""Element-wise functions of eight bits: a table of what the kernel gives for each of the 256 integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Node, Tensor
from mace_core.lowering import Lower, Lowering
from mace_core.ops.unary_attrs import ClipAttributes, LeakyReluAttributes
from mace_target_cpu.fixed_point.arithmetic import (
    exp_in_single,
    multiply_half,
    narrow_multiplier,
    rescale,
    round_away,
    shift_right,
)
from mace_target_cpu.fixed_point.rules import need_alike
from mace_target_cpu.quantized.rounding import refuse_rule, split_factor
from mace_target_cpu.quantized.storage import EIGHT_BITS, Scale
from mace_target_cpu.quantized.storage import round_away as round_step
from mace_target_cpu.quantized.table import call_table

MAX_RATIO = 128
"""Steps of a HardSwish that one step of its operand is less than: the multiplier lies below 1."""


@dataclass(frozen=True)
class Function:
    """An element-wise node, with the storages of its operand and its result."""

    node: Node
    x: Scale
    y: Scale
    low: int
    high: int

    @classmethod
    def from_tensors(cls, node: Node, x: Tensor, y: Tensor) -> Function:
        """Of two tensors with one scale each."""
        limits = np.iinfo(y.dtype.numpy)
        return cls(node, Scale.from_tensor(x), Scale.from_tensor(y), int(limits.min), int(limits.max))

    @property
    def ratio(self) -> float:
        """The scale of the operand in that of the result, divided in single precision."""
        return float(np.float32(self.x.step) / np.float32(self.y.step))

    def store(self, steps: Array) -> Array:
        """Return steps of the result as they are stored: with its zero point, within its type."""
        integers: Array = np.clip(steps + self.y.zero, self.low, self.high)
        return integers


def requantize(function: Function, integers: Array) -> Array:
    """Return integers in the scale of the result (kernels/quantize.cc)."""
    factor = function.x.step / function.y.step
    return function.store(np.array([rescale(int(i) - function.x.zero, factor) for i in integers]))


def _clip(function: Function, integers: Array) -> Array:
    """Return integers in the scale of the result, within rounded limits (kernels/activations.cc: ReluX)."""
    attrs = function.node.attributes(ClipAttributes)
    steps = np.array([rescale(int(i) - function.x.zero, function.ratio) for i in integers], np.float64)
    low, high = (round_step(value, function.y.step) for value in (attrs.min, attrs.max))
    return function.store(np.clip(steps, low, high))


def _leaky_relu(function: Function, integers: Array) -> Array:
    """Return negative integers by one multiplier, others by another (reference/leaky_relu.h)."""
    alpha = np.float32(function.node.attributes(LeakyReluAttributes).alpha)
    slope = float(np.float32(function.x.step) * alpha / np.float32(function.y.step))
    # Negative slopes are multiplied as positive ones, and negated.
    sign = -1 if slope < 0 else 1
    steps = [
        rescale(i, function.ratio) if i >= 0 else sign * rescale(i, abs(slope))
        for i in (int(integer) - function.x.zero for integer in integers)
    ]
    return function.store(np.array(steps))


def _hard_swish(function: Function, integers: Array) -> Array:
    """Return HardSwish by numbers of 16 bits (kernels/activations.cc and reference/hard_swish.h)."""
    fine_step = np.float32(1 / 128) * np.float32(function.x.step)
    multiplier, shift = split_factor(float(fine_step / np.float32(function.y.step)))
    ramp, ramp_shift = split_factor(float(fine_step / (np.float32(3) / np.float32(32768))))
    steps = []
    for integer in integers:
        fine = (int(integer) - function.x.zero) * 128
        gate = multiply_half(_saturate(fine << max(ramp_shift - 1, 0)), narrow_multiplier(ramp))
        gate = shift_right(_saturate(gate << (ramp_shift > 0)), max(-ramp_shift, 0))
        product = ((gate + (1 << 15)) >> 1) * multiply_half(fine, narrow_multiplier(multiplier))
        # C's division: towards 0, where the other products round.
        quotient = math.copysign(abs(product) >> 15, product)
        steps.append(shift_right(int(quotient), -shift))
    return function.store(np.array(steps))


def _saturate(value: int) -> int:
    return min(max(value, -(1 << 15)), (1 << 15) - 1)


def _in_single(compute: Callable[[Array], Array]) -> Callable[[Function, Array], Array]:
    """Return a function of floats, rounded to steps (kernels/internal/common.h: LUTPopulateInt8)."""

    def fill(function: Function, integers: Array) -> Array:
        real = np.float32(function.x.step) * (integers - function.x.zero).astype(np.float32)
        inverse = np.float32(1) / np.float32(function.y.step)
        return function.store(round_away(compute(real) * inverse))

    return fill


def _sigmoid(real: Array) -> Array:
    one = np.float32(1)
    result: Array = one / (one + exp_in_single(-real))
    return result


def _tanh(real: Array) -> Array:
    return np.tanh(real.astype(np.float64)).astype(np.float32)


def lower_table(node: Node, lowering: Lowering) -> None:
    """A function of one operand of eight bits, to eight bits of any type."""
    x, y = (lowering.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    if any(t.quant is None or t.dtype not in EIGHT_BITS for t in (x, y)):
        raise refuse_rule(lowering, f"{node.op.name} of {x.dtype.value} to {y.dtype.value} is not imitated")
    if node.op.name != "Quantize":
        need_alike(node, lowering, EIGHT_BITS)
    function = Function.from_tensors(node, x, y)
    if node.op.name == "HardSwish" and function.ratio >= MAX_RATIO:
        raise refuse_rule(lowering, "LiteRT computes no HardSwish whose result has that much smaller steps")
    # In the order of the bits, which are what the kernel indexes with.
    integers = np.arange(256, dtype=np.uint8).view(x.dtype.numpy).astype(np.int64)
    values = FUNCTIONS[node.op.name](function, integers)
    call_table(node, lowering, (x, y), values.astype(y.dtype.numpy))


FUNCTIONS: Mapping[str, Callable[[Function, Array], Array]] = {
    "Quantize": requantize,
    "Clip": _clip,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Sigmoid": _in_single(_sigmoid),
    "Tanh": _in_single(_tanh),
}
LOWERINGS: dict[str, Lower] = dict.fromkeys(
    ("Clip", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh"), lower_table
)
