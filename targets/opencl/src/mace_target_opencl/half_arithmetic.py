"""Computes the products of a program in half precision, on devices with the extension cl_khr_fp16.

Products of matrices and convolutions multiply and add in half precision: there a GPU is bound by arithmetic,
and computes twice as many. Their sums would lose what is small beside them: so many products at most are
summed in half precision, and such partial sums in float. What follows a product in its kernel (bias,
activation, residual), and every other kernel, computes in float: those are bound by memory, which storage in
half precision has halved already, and sums of squares or of exponentials would overflow at 65504.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from mace_core.program import Call, Program
from mace_target_opencl.enqueue import make_kernel, operands_of
from mace_target_opencl.types import FLOAT, HALF, HALF_VALUE

TEMPLATES = ("product.cl.in", "tile.cl.in", "windows.cl.in")
"""Templates whose sums have the type `type`."""

PARTIAL = 16
"""Products whose sum is in half precision: that of a block of `tile`, and of a row of the depth elsewhere.

Each of them, and each addition, rounds by 2^-11 at most. So a result is off by no more than 17 * 2^-11 times
the sum of the products' magnitudes, however deep the product is; summed in half precision alone, 2048 ones
and one more are 2048.
"""


def compute_in_half(program: Program) -> Program:
    """Return the program, whose tensors are stored in half precision already, with products computed so."""
    return replace(program, calls=tuple(_convert_call(call, program) for call in program.calls))


def _convert_call(call: Call, program: Program) -> Call:
    params = call.kernel.params
    template = call.kernel.template.name
    if template not in TEMPLATES or params["type"] != FLOAT or not _has_half_factors(call, program):
        return call
    # All taps of a depthwise window are summed at once, and the bound holds for no more than PARTIAL.
    if _count_taps(call) > PARTIAL:
        return call
    converted: dict[str, object] = {**params, "type": HALF_VALUE}
    if template != "windows.cl.in":
        converted["partial"] = PARTIAL
    return replace(call, kernel=make_kernel(template.removesuffix(".cl.in"), converted))


def _count_taps(call: Call) -> int:
    """Return the elements of a depthwise window, by itself or in the kernel of a product; 1 without one."""
    key = "axes" if call.kernel.template.name == "windows.cl.in" else "window_axes"
    axes: tuple[tuple[int, ...], ...] = call.kernel.params.get(key, ())  # type: ignore[assignment]
    return prod(axis[2] for axis in axes)


def _has_half_factors(call: Call, program: Program) -> bool:
    """Tell whether a call multiplies by numbers that are stored in half precision.

    Pools have no weights. A constant that is stored in floats beside half-precision tensors may have a number
    beyond 65504, which would become infinite.
    """
    pairs = zip(operands_of(call), call.reads, strict=False)
    factors = {str(operand.name): (operand.type, tensor) for operand, tensor in pairs}
    # f: filters of a depthwise convolution in the kernel of a product.
    if factors.get("w", (FLOAT, ""))[0] != HALF or factors.get("f", (HALF, ""))[0] != HALF:
        return False
    kind, tensor = factors["x"]
    return kind == HALF or program.root(tensor) not in program.weights
