"""fuse-hard: the spelled-out hard sigmoid and hard swish of mobile networks as one node each."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    Product,
    fuse,
    made_by,
    near,
    product,
    product_at,
    sum_with_number,
)

FILTERED = ("Conv", "ConvTranspose", "MatMul")


def fuse_hard(graph: Graph) -> Graph:
    """Fuse Clip(x + 3, 0, 6) / 6 to HardSigmoid and x times it to HardSwish, the factors in any order.

    Clip(a * x + b, 0, 1) too. The last not where a Conv or MatMul makes x for nothing else: it takes in
    a, b and the limits at no cost.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Clip":
        return fuse(match, _clipped(match))
    whole = product(match, match.node) if match.node.op.name in ("Mul", "Div") else None
    return fuse(match, (_gated(match, whole) or _ramped(match, whole)) if whole else None)


def _gated(match: Match, whole: Product) -> Fused | None:
    """X times its gate."""
    if len(whole.terms) != 2:
        return None
    for x, gate in (whole.terms, whole.terms[::-1]):
        sigmoid = made_by(match.new, gate, "HardSigmoid")
        if (
            sigmoid
            and sigmoid.inputs[0] == x
            and near(_float(sigmoid.attrs["alpha"]), 1 / 6)
            and sigmoid.attrs["beta"] == 0.5
        ):
            return Fused("HardSwish", [x], {}) if near(whole.number, 1) else None
        if _ramp(match, gate) == x:
            return Fused("HardSwish", [x], {}) if near(whole.number, 1 / 6) else None
    return None


def _ramped(match: Match, whole: Product) -> Fused | None:
    x = _ramp(match, whole.terms[0]) if len(whole.terms) == 1 and near(whole.number, 1 / 6) else None
    return Fused("HardSigmoid", [x], {"alpha": 1 / 6, "beta": 0.5}) if x else None


def _ramp(match: Match, tensor: str) -> str | None:
    """X where the tensor is Clip(x + 3, 0, 6)."""
    ramp = made_by(match.new, tensor, "Clip")
    if ramp is None or (ramp.attrs["min"], ramp.attrs["max"]) != (0.0, 6.0):
        return None
    x, three = sum_with_number(match.new, ramp.inputs[0]) or ("", 0.0)
    return x if three == 3 else None


def _clipped(match: Match) -> Fused | None:
    """Clip(a * x + b, 0, 1)."""
    if (match.node.attrs["min"], match.node.attrs["max"]) != (0.0, 1.0):
        return None
    term, beta = sum_with_number(match.new, match.node.inputs[0]) or ("", 0.0)
    slope = product_at(match, term) if term else None
    if slope is None or len(slope.terms) != 1 or slope.number is None:
        return None
    (x,) = slope.terms
    if made_by(match.new, x, *FILTERED) and match.uses.get(x, 1) == 1:
        return None
    return Fused("HardSigmoid", [x], {"alpha": slope.number, "beta": beta})


def _float(value: object) -> float:
    return float(str(value))
