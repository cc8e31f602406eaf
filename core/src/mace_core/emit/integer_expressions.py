"""Spells the element-wise ops of two integers in C, for targets whose kernels are C or a dialect of it.

In the expressions, x and y are the operands. WRAP is the unsigned type in which overflow wraps, WIDE the
unsigned type of 64 bits; `spell_integers` replaces both by the names of a language.
"""

from __future__ import annotations

from collections.abc import Mapping

COMPARISON: Mapping[str, str] = {
    "Equal": "x == y",
    "Less": "x < y",
    "LessEqual": "x <= y",
    "Greater": "x > y",
    "GreaterEqual": "x >= y",
}
"""Expressions that are right for floats too."""

UNSIGNED: Mapping[str, str] = {
    **COMPARISON,
    "Add": "(WRAP)x + (WRAP)y",
    "Sub": "(WRAP)x - (WRAP)y",
    "Mul": "(WRAP)x * (WRAP)y",
    "Div": "y == 0 ? 0 : x / y",
    "Minimum": "x < y ? x : y",
    "Maximum": "x > y ? x : y",
    "PRelu": "x > 0 ? (WRAP)x : (WRAP)x * (WRAP)y",
    "ModC": "y == 0 ? 0 : x % y",
    "ModFloor": "y == 0 ? 0 : x % y",
    # A shift by all bits or more is undefined in C, and by the count modulo the bits in its dialects.
    "BitShiftLeft": "(WIDE)y >= 8 * sizeof x ? 0 : (WIDE)x << y",
    "BitShiftRight": "(WIDE)y < 8 * sizeof x ? x >> y : 0",
    "And": "x && y",
    "Or": "x || y",
    "Xor": "!x != !y",
    "BitwiseAnd": "x & y",
    "BitwiseOr": "x | y",
    "BitwiseXor": "x ^ y",
}
"""Of two unsigned integers: overflow wraps, division by 0 is 0."""

SIGNED: Mapping[str, str] = {
    **UNSIGNED,
    # The quotient of the least integer and -1 overflows, and processors trap there, for a remainder as well.
    "Div": "y == 0 ? (WRAP)0 : y == -1 ? (WRAP)0 - (WRAP)x : (WRAP)(x / y)",
    "ModC": "y == 0 || y == -1 ? 0 : x % y",
    # Apart from that of unsigned integers, of which compilers warn where a branch is -1.
    "BitShiftRight": "(WIDE)y < 8 * sizeof x ? x >> y : x < 0 ? -1 : 0",
    "ModFloor": "y == 0 || y == -1 ? 0 : x % y != 0 && (x % y > 0) != (y > 0) ? x % y + y : x % y",
}


def spell_integers(form: str, *, is_signed: bool, wrap: str, wide: str) -> str:
    """Return the expression of one element of each operand; "" if there is none.

    form: the op's name, with the variant for Mod (ModC, ModFloor) and BitShift (BitShiftLeft, BitShiftRight).
    wrap, wide: what the language calls WRAP and WIDE.
    """
    expression = (SIGNED if is_signed else UNSIGNED).get(form, "")
    return expression.replace("WRAP", wrap).replace("WIDE", wide)
