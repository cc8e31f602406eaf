"""Scales and limits of quantized tensors, and the steps that store a result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.emit.text import Code
from mace_core.integer_storage import NARROW, Scale
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Refused
from mace_core.ops.conv import ClampAttributes
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import C_TYPES, literal


@dataclass(frozen=True)
class StepRange:
    """The range of a result, in steps from its zero point; of a result of floats, in real numbers."""

    low: float
    high: float

    @classmethod
    def from_result(cls, y: Tensor, low: float = -math.inf, high: float = math.inf) -> StepRange:
        """Return the range of a tensor within a clamp of real numbers."""
        if y.dtype is DType.F32 and y.quant is None:
            return cls(low, high)
        if y.dtype not in NARROW or y.quant is None:
            reason = f"{y.name} is {y.dtype.value}; no integer kernel writes that"
            raise Refused(reason, code="quantization")
        scale, integers = Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
        min_step, max_step = float(integers.min - scale.zero), float(integers.max - scale.zero)
        # A clamp in steps is rounded as elements are, so that both agree at the limit.
        steps = [min(max(float(np.rint(value / scale.step)), min_step), max_step) for value in (low, high)]
        return cls(steps[0], steps[1])


def clamp(node: Node) -> tuple[float, float]:
    """Return the node's low and high."""
    attrs = node.attributes(ClampAttributes)
    return attrs.low, attrs.high


def single(value: float) -> Code:
    """Return a number rounded to single precision, as the arguments of C kernels are."""
    return literal(float(np.float32(value)))


def spell_real(name: str, tensor: Tensor) -> str:
    """Return the expression of the real number of an element."""
    if tensor.quant is None:
        return name
    scale = Scale.from_tensor(tensor)
    return f"((float)((int){name} - ({scale.zero})) * {single(scale.step)})"


def spell_store(steps: str, y: Tensor, limits: StepRange) -> ElementStep:
    """Return the step that rounds to what a tensor stores.  steps: expression of the steps from its zero."""
    # Limited first: OpenCL leaves open what a float beyond 32 bits becomes as an int.
    limited = f"mace_limit({steps}, {literal(limits.low)}, {literal(limits.high)})"
    if y.quant is None:
        return ElementStep(Code(limited), (None,), C_TYPES[DType.F32])
    kind = C_TYPES[y.dtype]
    return ElementStep(
        Code(f"({kind})(convert_int_rte({limited}) + ({Scale.from_tensor(y).zero}))"), (None,), kind
    )
