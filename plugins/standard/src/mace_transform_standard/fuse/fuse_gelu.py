"""fuse-gelu: the Gaussian error linear unit written out, exact or by tanh."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    fuse,
    made_by,
    near,
    number,
    orders,
    product,
    product_at,
    sum_with_number,
)

CUBE = 0.044715
"""Of the approximation by tanh (Hendrycks and Gimpel, arXiv:1606.08415)."""


def fuse_gelu(graph: Graph) -> Graph:
    """Fuse x * (1 + erf(x / sqrt 2)) / 2, the factors in any order.

    The same with tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)). The complement 1 - erf(-x / sqrt 2) is the
    same gate.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    whole = product(match, match.node) if match.node.op.name in ("Mul", "Div") else None
    if whole is None or len(whole.terms) != 2 or not near(whole.number, 0.5):
        return None
    for x, gate in (whole.terms, whole.terms[::-1]):
        curve, sign = _curve(match, gate)
        fits = curve and (
            _is_scaled(match, curve, x, sign)
            if curve.op.name == "Erf"
            else sign > 0 and _is_cubic(match, curve.inputs[0], x)
        )
        if curve and fits:
            return fuse(
                match, Fused("Gelu", [x], {"approximate": "none" if curve.op.name == "Erf" else "tanh"})
            )
    return None


def _curve(match: Match, gate: str) -> tuple[Node | None, float]:
    """The Erf or Tanh and its sign where a tensor is 1 + or 1 - that."""
    inner, one = sum_with_number(match.new, gate) or ("", 0.0)
    if one == 1:
        return made_by(match.new, inner, "Erf", "Tanh"), 1.0
    rest = made_by(match.new, gate, "Sub")
    return (
        made_by(match.new, rest.inputs[1], "Erf", "Tanh")
        if rest and number(match.new, rest.inputs[0]) == 1
        else None
    ), -1.0


def _is_scaled(match: Match, erf: Node, x: str, sign: float) -> bool:
    argument = product_at(match, erf.inputs[0])
    return near(argument.number, sign * math.sqrt(0.5)) and argument.terms == (x,)


def _is_cubic(match: Match, tensor: str, x: str) -> bool:
    """Whether a tensor is sqrt(2 / pi) * (x + 0.044715 * x ** 3), or with one x taken out of the sum."""
    argument = product_at(match, tensor)
    if not near(argument.number, math.sqrt(2 / math.pi)):
        return False
    rest = argument.without(x)
    if rest is not None and len(rest) == 1:
        square, one = sum_with_number(match.new, rest[0]) or ("", 0.0)
        return one == 1 and _is_power(match, square, (x, x))
    total = made_by(match.new, argument.terms[0], "Add") if len(argument.terms) == 1 else None
    return total is not None and any(a == x and _is_power(match, b, (x, x, x)) for a, b in orders(total))


def _is_power(match: Match, tensor: str, terms: tuple[str, ...]) -> bool:
    found = product_at(match, tensor)
    return near(found.number, CUBE) and found.terms == terms
