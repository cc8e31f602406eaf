"""Bias and limits of products, as steps before the store."""

from __future__ import annotations

import math

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Node, Tensor
from mace_core.ops.conv import ClampAttributes
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import c_type, integer_literal, literal
from mace_target_opencl.views import View


def finish_steps(node: Node, result: Tensor, bias: Tensor | None) -> tuple[ElementStep, ...]:
    """Return the steps of a product: the bias, named `bias`, and the limits of the node's attributes."""
    steps = []
    kind = c_type(result)
    if bias is not None:
        # Flat: the bias belongs to the last axis, however many lie before it.
        columns = bias.elements
        view = View.of([(result.elements // max(1, columns), 0), (columns, 1)])
        steps.append(ElementStep(Code("x + y"), (None, Lookup(CIdentifier("bias"), view)), kind))
    attrs = node.attributes(ClampAttributes)
    if attrs.is_clamped:
        if result.dtype.is_float:
            low, high = literal(attrs.low), literal(attrs.high)
        else:
            low, high = _integer_limits(attrs, result)
        # Compared and not fmin and fmax, which would make a number of NaN.
        steps.append(ElementStep(Code(f"x < {low} ? {low} : x > {high} ? {high} : x"), (None,), kind))
    return tuple(steps)


def _integer_limits(attrs: ClampAttributes, result: Tensor) -> tuple[Code, Code]:
    import numpy as np

    limits = np.iinfo(result.dtype.numpy)
    # Rounded inward, so that no integer result lies beyond the limits of real numbers.
    low = limits.min if math.isinf(attrs.low) else max(limits.min, math.ceil(attrs.low))
    high = limits.max if math.isinf(attrs.high) else min(limits.max, math.floor(attrs.high))
    return integer_literal(int(low), result.dtype), integer_literal(int(high), result.dtype)
