"""fuse-prelu: a slope for what is below zero, written as a sum or a maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Graph, Node
from mace_core.ops.unary_attrs import ClipAttributes, LeakyReluAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import Fused, find_maker, fuse, operand_orders, read_factors


def fuse_prelu(graph: Graph) -> Graph:
    """Fuse Relu(x) + a * min(x, 0) -> PRelu(x, a), or LeakyRelu where all slopes are one.

    The lower half may be min(x, 0), -Relu(-x) or (x - |x|) / 2, times constants in any order; Maximum(x, a x)
    for 0 <= a <= 1 is the same. Exact but for products of several constants, which are one here.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Maximum":
        return fuse(match, _match_maximum(match))
    if match.node.op.name not in ("Add", "Sub"):
        return None
    for upper, lower in operand_orders(match.node):
        x = _match_upper(match, upper)
        slope = _match_lower(match, lower, x) if x else None
        if x and slope is not None:
            return fuse(match, _make_prelu(match, x, slope if match.node.op.name == "Add" else -slope))
    return None


def _match_maximum(match: Match) -> Fused | None:
    for x, scaled in operand_orders(match.node):
        factors = read_factors(match, scaled)
        # Above 1, a * x is the larger one for x > 0, and the maximum no longer that of PRelu.
        if factors.terms == (x,) and np.all((factors.factor >= 0) & (factors.factor <= 1)):
            return _make_prelu(match, x, factors.factor)
    return None


def _match_upper(match: Match, tensor: str) -> str | None:
    node = find_maker(match.builder, tensor, "Relu", "Clip")
    return node.inputs[0] if node and (node.op.name == "Relu" or _has_limits(node, 0.0, math.inf)) else None


def _match_lower(match: Match, tensor: str, x: str) -> Array | None:
    """The a where a tensor is a * min(x, 0)."""
    factors = read_factors(match, tensor)
    node = match.builder.producer(factors.terms[0]) if len(factors.terms) == 1 else None
    if node is None:
        return None
    if node.op.name == "Clip" and node.inputs[0] == x and _has_limits(node, -math.inf, 0.0):
        return factors.factor
    if node.op.name == "Relu":
        inner = read_factors(match, node.inputs[0])
        return -factors.factor if inner.terms == (x,) and inner.number == -1 else None
    if node.op.name == "Sub" and node.inputs[0] == x:
        # x - |x| is 0 above zero and 2 x below it.
        size = find_maker(match.builder, node.inputs[1], "Abs")
        return 2 * factors.factor if size and size.inputs[0] == x else None
    return None


def _has_limits(clip: Node, low: float, high: float) -> bool:
    return clip.attributes(ClipAttributes) == ClipAttributes(low, high)


def _make_prelu(match: Match, x: str, slope: Array) -> Fused:
    if slope.size and np.all(slope == slope.reshape(-1)[0]):
        return Fused("LeakyRelu", [x], LeakyReluAttributes(float(slope.reshape(-1)[0])))
    dtype = match.builder.tensors[x].real.dtype.numpy
    return Fused(
        "PRelu",
        [x, match.builder.weight(f"{match.node.outputs[0]}.slope", slope.astype(dtype))],
        Attributes(),
    )
