"""fuse-prelu: a slope for what is below zero, written as a sum or a maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import Fused, fuse, made_by, orders, product_at


def fuse_prelu(graph: Graph) -> Graph:
    """Fuse max(x, 0) + a * min(x, 0) to PRelu, or to LeakyRelu where all slopes are one.

    The lower half as min(x, 0), -Relu(-x) or (x - |x|) / 2, times constants in any order; max(x, a * x)
    for slopes of 0 to 1 too.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Maximum":
        return fuse(match, _maximum(match))
    if match.node.op.name not in ("Add", "Sub"):
        return None
    for upper, lower in orders(match.node)[: 2 if match.node.op.name == "Add" else 1]:
        x = _upper(match, upper)
        slope = _slope(match, lower, x) if x else None
        if x and slope is not None:
            return fuse(match, _sloped(match, x, slope if match.node.op.name == "Add" else -slope))
    return None


def _maximum(match: Match) -> Fused | None:
    for x, sloped in orders(match.node):
        found = product_at(match, sloped)
        if found.terms == (x,) and np.all((found.factor >= 0) & (found.factor <= 1)):
            return _sloped(match, x, found.factor)
    return None


def _upper(match: Match, tensor: str) -> str | None:
    node = made_by(match.new, tensor, "Relu", "Clip")
    return node.inputs[0] if node and (node.op.name == "Relu" or _between(node, 0.0, math.inf)) else None


def _slope(match: Match, tensor: str, x: str) -> Array | None:
    """The a where a tensor is a * min(x, 0)."""
    found = product_at(match, tensor)
    node = match.new.producer(found.terms[0]) if len(found.terms) == 1 else None
    if node is None:
        return None
    if node.op.name == "Clip" and node.inputs[0] == x and _between(node, -math.inf, 0.0):
        return found.factor
    if node.op.name == "Relu":
        inner = product_at(match, node.inputs[0])
        return -found.factor if inner.terms == (x,) and inner.number == -1 else None
    if node.op.name == "Sub" and node.inputs[0] == x:
        size = made_by(match.new, node.inputs[1], "Abs")
        return 2 * found.factor if size and size.inputs[0] == x else None
    return None


def _between(clip: Node, low: float, high: float) -> bool:
    return (clip.attrs["min"], clip.attrs["max"]) == (low, high)


def _sloped(match: Match, x: str, slope: Array) -> Fused:
    if slope.size and np.all(slope == slope.reshape(-1)[0]):
        return Fused("LeakyRelu", [x], {"alpha": float(slope.reshape(-1)[0])})
    dtype = match.new.tensors[x].real.dtype.numpy
    return Fused("PRelu", [x, match.new.weight(f"{match.node.outputs[0]}.slope", slope.astype(dtype))], {})
