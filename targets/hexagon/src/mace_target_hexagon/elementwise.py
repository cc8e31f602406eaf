"""Sums and differences of bytes by HVX, with the bits of the CPU's floats."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.integer_storage import EIGHT_BITS, Scale, need_stored
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.quantized.storage import result
from mace_target_hexagon.isa import KERNELS

SIGNS = {"Add": 1, "Sub": -1}
"""Of the second operand."""

MAX_BITS, MIN_BITS = 21, 16
"""Bits behind the point of a word: the upper half of a word has up to 5 of them, and at least none."""

WORDS = ("x_even", "x_odd", "y_even", "y_odd", "start", "bits", "near")
FIELDS = (
    ("n", "i64"),
    ("x_zero", "i32"),
    ("y_zero", "i32"),
    ("x_scale", "f32"),
    ("y_scale", "f32"),
    ("inverse", "f32"),
    ("low", "f32"),
    ("high", "f32"),
    ("z_zero", "i32"),
    *((name, "i32") for name in WORDS),
)


@dataclass(frozen=True)
class SumInWords:
    """A sum of two bytes in words with `bits` bits behind the point.

    x_even, x_odd, y_even, y_odd: factors of the operands, for the instructions that multiply even and odd
    halves of words; both take bytes times 128.  start: what the sum begins with: the zero points, a half, and
    half of `near`.  near: fractions below this may be rounded to either side by floats.
    """

    x_even: int
    x_odd: int
    y_even: int
    y_odd: int
    start: int
    bits: int
    near: int

    @classmethod
    def of(cls, operands: tuple[Tensor, Tensor], z: Tensor, sign: int) -> SumInWords:
        """Return the factors of x + sign * y; Refused where words cannot hold the sums."""
        step = np.float64(np.float32(1 / Scale.from_tensor(z).step))
        x, y = (float(np.float64(np.float32(Scale.from_tensor(t).step)) * step) for t in operands)
        # Operands are read as unsigned bytes, and results packed as signed ones.
        x_zero, y_zero = (Scale.from_tensor(t).zero + 128 * (t.dtype is DType.I8) for t in operands)
        shifted = Scale.from_tensor(z).zero - 128 * (z.dtype is DType.U8)
        offset = shifted - x * x_zero - sign * y * y_zero
        extremes = (offset, offset + 255 * x, offset + sign * 255 * y, offset + 255 * (x + sign * y))
        reach = max(map(abs, (*extremes, offset + 255 * x))) + 2
        # A word holds every sum on the way, and the larger factor, which is of bytes times 128.
        room = min(31 - math.log2(reach + 255 * y), 22 - math.log2(max(x, y)))
        bits = min(MAX_BITS, math.floor(room))
        if bits < MIN_BITS:
            raise Refused("its scales differ too much for sums in words", code="quantization")
        near = cls._count_doubts(255 * x, 255 * y, bits)
        x_odd, y_odd = (math.ldexp(factor, bits + 8) for factor in (x, sign * y))
        start = round(math.ldexp(offset, bits)) + (1 << (bits - 1)) + near
        return cls(round(2 * x_odd), round(x_odd), round(2 * y_odd), round(y_odd), start, bits, 2 * near)

    @staticmethod
    def _count_doubts(x: float, y: float, bits: int) -> int:
        """Return how far from the true sum floats and words may be apart, in the last bit of a word.

        x, y: the operands' largest magnitudes in steps of the result.
        """
        # Floats round each operand, their sum, and its product with the inverse, to 24 bits each. What is
        # beyond 257 steps is stored as a bound by either way.
        single = (x + y + 2 * min(257.0, x + y)) * 2.0**-24 * 1.001
        # Words lose less than 1 by each of two products, and 1/4 by each factor; `start` rounds once.
        return math.ceil(math.ldexp(single, bits)) + 4


def lower_sum(node: Node, lowering: Lowering) -> None:
    """Lower a sum or a difference of two computed tensors of bytes of one shape."""
    x, y, z = (need_stored(lowering, name, EIGHT_BITS) for name in (*node.inputs, *node.outputs))
    if not x.shape == y.shape == z.shape:
        raise Refused("its operands have different shapes", code="shape")
    sign = SIGNS[node.op.name]
    words = SumInWords.of((x, y), z, sign)
    left, right, limits = Scale.from_tensor(x), Scale.from_tensor(y), result(z)
    args: dict[str, Arg] = {
        "n": z.elements,
        "x_zero": left.zero,
        "y_zero": right.zero,
        "x_scale": left.step,
        "y_scale": sign * right.step,
        "inverse": 1 / Scale.from_tensor(z).step,
        "low": limits["low"],
        "high": limits["high"],
        "z_zero": limits["y_zero"],
        **{name: int(getattr(words, name)) for name in WORDS},
    }
    params = {f"{role}_signed": t.dtype is DType.I8 for role, t in (("x", x), ("y", y), ("z", z))}
    name = f"sum_bytes_{x.dtype.value}_{y.dtype.value}_{z.dtype.value}"
    kernel = Kernel(name, KERNELS / "sum_bytes.c.in", FIELDS, params)
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def estimate_sum(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that an instruction of HVX adds about three elements."""
    return lowering.tensors[node.outputs[0]].elements / 3


def estimate_elements(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that each element that is read or written takes an instruction or more."""
    return max(lowering.tensors[name].elements for name in (*node.inputs, *node.outputs) if name)
