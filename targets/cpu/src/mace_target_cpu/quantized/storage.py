"""What lowerings need to know of a quantized tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from mace_core.emit.text import Code
from mace_core.integer_storage import EIGHT_BITS, NARROW, Scale, need_room, need_stored
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Refused
from mace_core.ops.conv import ClampAttributes
from mace_core.program import Arg

__all__ = [
    "CODES",
    "C_TYPES",
    "EIGHT_BITS",
    "NARROW",
    "RESULT",
    "Scale",
    "clamp",
    "need_room",
    "need_stored",
    "pad_columns",
    "result",
    "round_away",
    "round_even",
]

C_TYPES: Mapping[DType, Code] = {
    DType.I8: Code("int8_t"),
    DType.U8: Code("uint8_t"),
    DType.I16: Code("int16_t"),
}
CODES: Mapping[DType, int] = {DType.I8: 0, DType.U8: 1, DType.I16: 2, DType.I32: 3, DType.F32: 4}
"""The STORED_ constants of requantize.h.in."""

RESULT = (("low", "f32"), ("high", "f32"), ("y_zero", "i32"), ("y_type", "i32"))
"""Arguments that say how results are stored."""


def round_even(value: float, step: float) -> float:
    """Return the steps nearest to a number, a tie to the even one."""
    return float(np.rint(value / step))


def round_away(value: float, step: float) -> float:
    """Return the steps nearest to a number, a tie away from 0, after a division in single precision."""
    # CalculateActivationRangeQuantized of LiteRT (kernels/kernel_util.cc).
    steps = float(np.float32(value) / np.float32(step))
    return math.copysign(math.floor(abs(steps) + 0.5), steps) if math.isfinite(steps) else steps


def result(
    y: Tensor,
    low: float = -math.inf,
    high: float = math.inf,
    rule: Callable[[float, float], float] = round_even,
) -> dict[str, Arg]:
    """Return the arguments of RESULT.

    low, high: a clamp, as real numbers.  rule: rounds them to steps of the result.
    """
    if y.dtype not in CODES or (y.dtype is not DType.F32 and y.quant is None):
        raise Refused(f"{y.name} is {y.dtype.value}; no integer kernel writes that", code="quantization")
    scale = Scale.from_tensor(y)
    if y.dtype is DType.I32 and (scale.zero, low, high) != (0, -math.inf, math.inf):
        raise Refused(f"{y.name} is i32 with a zero point or a clamp", code="quantization")
    if y.dtype in (DType.F32, DType.I32):
        return {"low": low, "high": high, "y_zero": scale.zero, "y_type": CODES[y.dtype]}
    limits = np.iinfo(y.dtype.numpy)
    min_step, max_step = float(limits.min - scale.zero), float(limits.max - scale.zero)
    # A clamp in steps is rounded as elements are, so that both agree at the limit.
    steps = [min(max(rule(value, scale.step), min_step), max_step) for value in (low, high)]
    return {"low": steps[0], "high": steps[1], "y_zero": scale.zero, "y_type": CODES[y.dtype]}


def clamp(node: Node) -> tuple[float, float]:
    """Return the node's low and high."""
    attrs = node.attributes(ClampAttributes)
    return attrs.low, attrs.high


def pad_columns(values: Array, groups: int, panel: int) -> Array:
    """Return the values of each group with zeros behind them up to a multiple of `panel`."""
    columns = len(values) // groups
    full = np.zeros((groups, -(-columns // panel) * panel, *values.shape[1:]), values.dtype)
    full[:, :columns] = values.reshape(groups, columns, *values.shape[1:])
    return full
