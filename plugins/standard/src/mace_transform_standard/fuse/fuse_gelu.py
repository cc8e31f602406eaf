"""fuse-gelu: the Gaussian error linear unit written out, exact or by tanh."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.unary_attrs import GeluAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    find_maker,
    fuse,
    near,
    operand_orders,
    read_factors,
    read_number,
    read_product,
    sum_with_number,
)

CUBE = 0.044715
"""Of the approximation by tanh (Hendrycks and Gimpel, arXiv:1606.08415)."""


def fuse_gelu(graph: Graph) -> Graph:
    """Fuse x * (1 + erf(x / sqrt 2)) / 2 -> Gelu(x), the factors in any order.

    The same with tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)). The complement 1 - erf(-x / sqrt 2) is the
    same gate. Constants may be rounded as models write them (`CLOSE`), so results differ by as much.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    factors = read_product(match, match.node) if match.node.op.name in ("Mul", "Div") else None
    if factors is None or len(factors.terms) != 2 or not near(factors.number, 0.5):
        return None
    for x, gate in (factors.terms, factors.terms[::-1]):
        curve, sign = _find_curve(match, gate)
        fits = curve and (
            _is_scaled(match, curve, x, sign)
            if curve.op.name == "Erf"
            else sign > 0 and _is_cubic(match, curve.inputs[0], x)
        )
        if curve and fits:
            return fuse(
                match, Fused("Gelu", [x], GeluAttributes("none" if curve.op.name == "Erf" else "tanh"))
            )
    return None


def _find_curve(match: Match, gate: str) -> tuple[Node | None, float]:
    """The Erf or Tanh and its sign where a tensor is 1 + or 1 - that."""
    inner, one = sum_with_number(match.builder, gate) or ("", 0.0)
    if one == 1:
        return find_maker(match.builder, inner, "Erf", "Tanh"), 1.0
    rest = find_maker(match.builder, gate, "Sub")
    return (
        find_maker(match.builder, rest.inputs[1], "Erf", "Tanh")
        if rest and read_number(match.builder, rest.inputs[0]) == 1
        else None
    ), -1.0


def _is_scaled(match: Match, erf: Node, x: str, sign: float) -> bool:
    argument = read_factors(match, erf.inputs[0])
    return near(argument.number, sign * math.sqrt(0.5)) and argument.terms == (x,)


def _is_cubic(match: Match, tensor: str, x: str) -> bool:
    """Whether a tensor is sqrt(2 / pi) * (x + 0.044715 * x ** 3), or with one x taken out of the sum."""
    # Constants are compared with a tolerance, since exporters round sqrt(2 / pi) in their own ways.
    argument = read_factors(match, tensor)
    if not near(argument.number, math.sqrt(2 / math.pi)):
        return False
    rest = argument.remove_terms(x)
    if rest is not None and len(rest) == 1:
        square, one = sum_with_number(match.builder, rest[0]) or ("", 0.0)
        return one == 1 and _is_power(match, square, (x, x))
    total = find_maker(match.builder, argument.terms[0], "Add") if len(argument.terms) == 1 else None
    return total is not None and any(
        a == x and _is_power(match, b, (x, x, x)) for a, b in operand_orders(total)
    )


def _is_power(match: Match, tensor: str, terms: tuple[str, ...]) -> bool:
    factors = read_factors(match, tensor)
    return near(factors.number, CUBE) and factors.terms == terms
