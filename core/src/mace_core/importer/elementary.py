"""Composes elementary functions that several frameworks have, and the IR has not, out of ops of the IR.

Each function adds all nodes but the last one, and returns the operands of the last, for `node.done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from types import MappingProxyType

from mace_core.importer.node import ImportedNode
from mace_core.ir import DType

LOWEST_EXPONENT: Mapping[DType, float] = MappingProxyType(
    {DType.F16: -10.0, DType.F32: -20.0, DType.F64: -40.0}
)
"""Where exp(x) - 1 is -1 in every digit of a type, long before sinh(x / 2) is infinite."""

MAX_SMALL = 0.5
"""Up to this magnitude log(1 + x) is computed without the sum 1 + x, whose last digits would be lost."""


def expm1_factors(node: ImportedNode, x: str) -> list[str]:
    """Return the operands of the Mul that is exp(x) - 1.

    It is 2 exp(x / 2) sinh(x / 2): the subtraction would lose the digits of small numbers.
    """
    dtype = node.builder.tensors[x].dtype
    low = node.add_constant(LOWEST_EXPONENT[dtype], dtype, "low")
    limited = node.emit("Maximum", [x, low], tag="limited")
    half = node.emit("Mul", [limited, node.add_constant(0.5, dtype, "half")], tag="half")
    exp, sinh = (node.emit(op, [half], tag=op.lower()) for op in ("Exp", "Sinh"))
    product = node.emit("Mul", [exp, sinh], tag="product")
    return [product, node.add_constant(2.0, dtype, "two")]


def log1p_choice(node: ImportedNode, x: str) -> list[str]:
    """Return the operands of the Where that is log(1 + x).

    Near 0 it is 2 atanh(x / (2 + x)): the sum 1 + x would lose the digits of small numbers. Farther away the
    quotient would lose those of large ones.
    """
    dtype = node.builder.tensors[x].dtype
    one, two, limit = (node.add_constant(v, dtype, "number") for v in (1.0, 2.0, MAX_SMALL))
    ratio = node.emit("Div", [x, node.emit("Add", [x, two], tag="sum")], tag="ratio")
    near = node.emit("Mul", [node.emit("Atanh", [ratio], tag="atanh"), two], tag="near")
    far = node.emit("Log", [node.emit("Add", [x, one], tag="sum")], tag="far")
    is_small = node.emit("Less", [node.emit("Abs", [x], tag="size"), limit], tag="small")
    return [is_small, near, far]


def atan2_choice(node: ImportedNode, y: str, x: str) -> list[str]:
    """Return the operands of the Where that is the angle of the point (x, y)."""
    dtype = node.builder.tensors[y].dtype
    # The IR has Atan only, which is right for x > 0. For x < 0 the angle is half a turn further, towards the
    # side of y; on the axis x = 0, where the slope is not finite, it is a quarter of a turn.
    zero, quarter_turn, half_turn, back = (node.add_constant(v, dtype, "angle") for v in (0, pi / 2, pi, -pi))
    angle = node.emit("Atan", [node.emit("Div", [y, x], tag="slope")], tag="angle")
    below = node.emit("Less", [y, zero], tag="below")
    turn = node.emit("Where", [below, back, half_turn], tag="turn")
    left = node.emit("Where", [node.emit("Less", [x, zero], tag="left"), turn, zero], tag="turn")
    upright = node.emit("Mul", [node.emit("Sign", [y], tag="side"), quarter_turn], tag="upright")
    aside = node.emit("Add", [angle, left], tag="aside")
    return [node.emit("Equal", [x, zero], tag="axis"), upright, aside]
