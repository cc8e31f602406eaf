"""Functions of one quantized tensor as tables of results, for integer kernels of any target.

Of eight bits a table holds what each value becomes, and is exact by construction. Of sixteen it holds the
knots of a curve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mace_core.integer_storage import NARROW, Scale, need_stored
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.quantization import compute

KNOT_BITS = 6
"""Bits of a knot behind the point: with 16 before it and 8 of a place between knots, all fits 32."""


@dataclass(frozen=True)
class Curve:
    """Straight lines between knots, which stand for a function of sixteen bits.

    knots: its results at each 2 ** shift values, with KNOT_BITS behind the point, as int32.
    """

    knots: Array
    shift: int

    def interpolate(self) -> Array:
        """Return what a kernel computes for each of the 65536 values."""
        place = np.arange(1 << 16)
        first, rest = self.knots[place >> self.shift], place & ((1 << self.shift) - 1)
        bits = self.shift + KNOT_BITS
        line = first * (1 << self.shift) + (self.knots[(place >> self.shift) + 1] - first) * rest
        return np.asarray((line + (1 << (bits - 1))) >> bits)


def find_operand(node: Node, lowering: Lowering) -> Tensor:
    """Return the operand that is computed and quantized, and that has the shape of the result.

    Raises Refused unless there is one, and the others are constants of one element.
    """
    computed = {name for name in node.inputs if name and lowering.constant(name) is None}
    others = [name for name in node.inputs if name and name not in computed]
    if len(computed) != 1 or any(lowering.tensors[name].elements != 1 for name in others):
        reason = f"{node.op.name} combines several operands; a table holds a function of one"
        raise Refused(reason, code="quantization")
    x, y = need_stored(lowering, computed.pop(), NARROW), lowering.tensors[node.outputs[0]]
    if y.shape != x.shape:
        raise Refused(f"{y.name} has another shape than {x.name}", code="shape")
    return x


def compute_table(node: Node, lowering: Lowering, x: Tensor) -> Array:
    """Return what each value of an operand of eight bits becomes, in the order of its bits."""
    # A kernel indexes with the bits of an element, as an unsigned number.
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    inputs = _read_operands(node, lowering, replace(x, shape=(256,)), every)
    y = lowering.tensors[node.outputs[0]]
    (results,) = compute(node.op, node.attrs, inputs, [replace(y, shape=(256,))])
    return np.ascontiguousarray(results)


def fit_curve(node: Node, lowering: Lowering, x: Tensor) -> Curve:
    """Return the fewest knots between which no result is a step or more from the real one; raises Refused."""
    y = lowering.tensors[node.outputs[0]]
    if y.dtype not in NARROW or y.quant is None:
        raise Refused(f"{y.name} is {y.dtype.value}; no curve gives that", code="quantization")
    results = _compute_steps(node, lowering, x, y)
    # Few knots first: 257 of them are 1 KiB, 4097 are 16 KiB.
    for shift in range(8, 3, -1):
        curve = Curve(np.rint(results[:: 1 << shift] * (1 << KNOT_BITS)).astype(np.int32), shift)
        if np.abs(curve.interpolate() - results[:-1]).max() < 1:
            return curve
    reason = f"{node.op.name} bends too sharply between {len(curve.knots)} knots"
    raise Refused(reason, code="quantization")


def _compute_steps(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> Array:
    """Return what each value, and the one behind the last, becomes: in steps of the result, not rounded."""
    source, target, limits = Scale.from_tensor(x), Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
    every = ((np.arange(-(1 << 15), (1 << 15) + 1) - source.zero) * source.step).astype(np.float32)
    inputs = _read_operands(node, lowering, Tensor(x.name, DType.F32, every.shape), every)
    # Ops may divide by 0 or overflow at some of the 65536 values; that is refused below.
    with np.errstate(all="ignore"):
        (real,) = compute(node.op, node.attrs, inputs, [Tensor(y.name, DType.F32, every.shape)])
    if not np.isfinite(real).all():
        raise Refused(f"{node.op.name} is not finite everywhere", code="quantization")
    steps = real.astype(np.float64) / target.step + target.zero
    # Beyond its type a result may be as far as it still rounds to the end.
    return np.asarray(np.clip(steps, limits.min - 0.49, limits.max + 0.49))


def _read_operands(
    node: Node, lowering: Lowering, x: Tensor, values: Array
) -> list[tuple[Tensor, Array] | None]:
    """Return the operands of a node, the computed one as x with these values; None for absent ones."""
    operands: list[tuple[Tensor, Array] | None] = []
    for name in node.inputs:
        constant = lowering.constant(name) if name else None
        if constant is not None:
            operands.append((lowering.tensors[name], constant))
        else:
            operands.append((x, values) if name else None)
    return operands
