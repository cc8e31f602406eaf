"""fuse-gates: x times a gate of x: Swish and Mish; and the Sigmoid and Softplus that gates are made of."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import Fused, fuse, made_by, near, product, product_at, sum_with_number


def fuse_gates(graph: Graph) -> Graph:
    """Fuse x * Sigmoid(a * x) to Swish, x * Tanh(Softplus(x)) to Mish.

    1 / (1 + exp(-x)) to Sigmoid, log(1 + exp(x)) to Softplus.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    op = match.node.op.name
    if op == "Mul":
        return fuse(match, _gated(match))
    if op == "Div":
        return fuse(match, _quotient(match))
    if op == "Reciprocal":
        return fuse(match, _sigmoid(match, match.node.inputs[0]))
    return fuse(match, _softplus(match)) if op == "Log" else None


def _gated(match: Match) -> Fused | None:
    whole = product(match, match.node)
    if whole is None or len(whole.terms) != 2 or whole.number != 1:
        return None
    for x, gate in (whole.terms, whole.terms[::-1]):
        node = made_by(match.new, gate, "Sigmoid", "Tanh")
        if node and node.op.name == "Sigmoid":
            argument = product_at(match, node.inputs[0])
            if argument.terms == (x,) and argument.number is not None:
                return Fused("Swish", [x], {"alpha": argument.number})
        softplus = made_by(match.new, node.inputs[0], "Softplus") if node else None
        if softplus and softplus.inputs[0] == x:
            return Fused("Mish", [x], {})
    return None


def _quotient(match: Match) -> Fused | None:
    """Swish as x / (1 + exp(-x)), the gate a divisor."""
    dividend, divisor = match.node.inputs
    sigmoid = _sigmoid(match, divisor)
    return Fused("Swish", [dividend], {"alpha": 1.0}) if sigmoid and sigmoid.inputs[0] == dividend else None


def _sigmoid(match: Match, divisor: str) -> Fused | None:
    """The sigmoid that 1 / divisor is."""
    term, one = sum_with_number(match.new, divisor) or ("", 0.0)
    power = made_by(match.new, term, "Exp") if one == 1 else None
    exponent = product_at(match, power.inputs[0]) if power else None
    negative = exponent and len(exponent.terms) == 1 and near(exponent.number, -1)
    return Fused("Sigmoid", [exponent.terms[0]], {}) if exponent and negative else None


def _softplus(match: Match) -> Fused | None:
    term, one = sum_with_number(match.new, match.node.inputs[0]) or ("", 0.0)
    power = made_by(match.new, term, "Exp") if one == 1 else None
    return Fused("Softplus", [power.inputs[0]], {}) if power else None
