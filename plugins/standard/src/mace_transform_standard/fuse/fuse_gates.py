"""fuse-gates: x times a gate of x: Swish and Mish; and the Sigmoid and Softplus that gates are made of."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.ops.unary_attrs import AlphaAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    find_maker,
    fuse,
    near,
    read_factors,
    read_product,
    sum_with_number,
)


def fuse_gates(graph: Graph) -> Graph:
    """Fuse x * Sigmoid(a x) -> Swish(x), x * Tanh(Softplus(x)) -> Mish(x), and what gates are made of.

    1 / (1 + exp(-x)) -> Sigmoid(x), log(1 + exp(x)) -> Softplus(x). As exact as the kernels, which do not
    overflow where the spelled-out form does.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    op = match.node.op.name
    if op == "Mul":
        return fuse(match, _match_gated(match))
    if op == "Div":
        return fuse(match, _match_quotient(match))
    if op == "Reciprocal":
        return fuse(match, _match_sigmoid(match, match.node.inputs[0]))
    return fuse(match, _match_softplus(match)) if op == "Log" else None


def _match_gated(match: Match) -> Fused | None:
    factors = read_product(match, match.node)
    if factors is None or len(factors.terms) != 2 or factors.number != 1:
        return None
    for x, gate in (factors.terms, factors.terms[::-1]):
        node = find_maker(match.builder, gate, "Sigmoid", "Tanh")
        if node and node.op.name == "Sigmoid":
            argument = read_factors(match, node.inputs[0])
            if argument.terms == (x,) and argument.number is not None:
                return Fused("Swish", [x], AlphaAttributes(argument.number))
        softplus = find_maker(match.builder, node.inputs[0], "Softplus") if node else None
        if softplus and softplus.inputs[0] == x:
            return Fused("Mish", [x])
    return None


def _match_quotient(match: Match) -> Fused | None:
    """Swish as x / (1 + exp(-x)), the gate a divisor."""
    dividend, divisor = match.node.inputs
    sigmoid = _match_sigmoid(match, divisor)
    return (
        Fused("Swish", [dividend], AlphaAttributes(1.0))
        if sigmoid and sigmoid.inputs[0] == dividend
        else None
    )


def _match_sigmoid(match: Match, divisor: str) -> Fused | None:
    """The sigmoid that 1 / divisor is."""
    term, one = sum_with_number(match.builder, divisor) or ("", 0.0)
    power = find_maker(match.builder, term, "Exp") if one == 1 else None
    exponent = read_factors(match, power.inputs[0]) if power else None
    # -1 as a factor, or Neg: `read_factors` sees both.
    negative = exponent and len(exponent.terms) == 1 and near(exponent.number, -1)
    return Fused("Sigmoid", [exponent.terms[0]]) if exponent and negative else None


def _match_softplus(match: Match) -> Fused | None:
    term, one = sum_with_number(match.builder, match.node.inputs[0]) or ("", 0.0)
    power = find_maker(match.builder, term, "Exp") if one == 1 else None
    return Fused("Softplus", [power.inputs[0]]) if power else None
