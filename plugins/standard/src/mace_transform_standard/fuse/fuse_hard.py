"""fuse-hard: the spelled-out hard sigmoid and hard swish of mobile networks as one node each."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.ops.unary_attrs import ClipAttributes, HardSigmoidAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    FactorProduct,
    Fused,
    find_maker,
    fuse,
    near,
    read_factors,
    read_product,
    sum_with_number,
)

FILTERED = ("Conv", "ConvTranspose", "MatMul")


def fuse_hard(graph: Graph) -> Graph:
    """Fuse Clip(x + 3, 0, 6) / 6 -> HardSigmoid(x), x times that -> HardSwish(x), the factors in any order.

    Clip(a x + b, 0, 1) -> HardSigmoid(x) too, but not where a Conv or MatMul makes x for nothing else: it
    takes in a, b and the limits at no cost. Rounding differs by an ulp.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Clip":
        return fuse(match, _match_clip(match))
    factors = read_product(match, match.node) if match.node.op.name in ("Mul", "Div") else None
    return fuse(match, (_match_gated(match, factors) or _match_ramp(match, factors)) if factors else None)


def _match_gated(match: Match, factors: FactorProduct) -> Fused | None:
    """X times its gate."""
    if len(factors.terms) != 2:
        return None
    for x, gate in (factors.terms, factors.terms[::-1]):
        sigmoid = find_maker(match.builder, gate, "HardSigmoid")
        if sigmoid and sigmoid.inputs[0] == x and _is_sixth(sigmoid.attributes(HardSigmoidAttributes)):
            return Fused("HardSwish", [x]) if near(factors.number, 1) else None
        if _read_ramp(match, gate) == x:
            return Fused("HardSwish", [x]) if near(factors.number, 1 / 6) else None
    return None


def _match_ramp(match: Match, factors: FactorProduct) -> Fused | None:
    x = (
        _read_ramp(match, factors.terms[0])
        if len(factors.terms) == 1 and near(factors.number, 1 / 6)
        else None
    )
    return Fused("HardSigmoid", [x], HardSigmoidAttributes(1 / 6, 0.5)) if x else None


def _read_ramp(match: Match, tensor: str) -> str | None:
    """X where the tensor is Clip(x + 3, 0, 6)."""
    ramp = find_maker(match.builder, tensor, "Clip")
    if ramp is None or ramp.attributes(ClipAttributes) != ClipAttributes(0.0, 6.0):
        return None
    x, three = sum_with_number(match.builder, ramp.inputs[0]) or ("", 0.0)
    return x if three == 3 else None


def _match_clip(match: Match) -> Fused | None:
    """Clip(a * x + b, 0, 1)."""
    if match.node.attributes(ClipAttributes) != ClipAttributes(0.0, 1.0):
        return None
    term, beta = sum_with_number(match.builder, match.node.inputs[0]) or ("", 0.0)
    slope = read_factors(match, term) if term else None
    if slope is None or len(slope.terms) != 1 or slope.number is None:
        return None
    (x,) = slope.terms
    # The filters take in slope, offset and limits at no cost; a HardSigmoid is a pass of its own.
    if find_maker(match.builder, x, *FILTERED) and match.is_read_once(x):
        return None
    return Fused("HardSigmoid", [x], HardSigmoidAttributes(slope.number, beta))


def _is_sixth(attrs: HardSigmoidAttributes) -> bool:
    """Whether they are those of the hard sigmoid of mobile networks, x / 6 + 1 / 2."""
    return near(attrs.alpha, 1 / 6) and attrs.beta == 0.5
