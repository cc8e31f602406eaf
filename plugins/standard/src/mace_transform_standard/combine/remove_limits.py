"""remove-limits: an activation that limits what lies within its limits already."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.ops.unary_attrs import ClipAttributes
from mace_core.rewrite import Match, rewrite

Range = tuple[int | float, int | float]

ANY: Range = (-math.inf, math.inf)
POSITIVE: Range = (0.0, math.inf)
RANGES: Mapping[str, Range] = {
    **dict.fromkeys(
        ("Relu", "Abs", "Exp", "Sqrt", "Softplus", "ReduceL1", "ReduceL2", "ReduceSumSquare"), POSITIVE
    ),
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax", "Hardmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Softsign"), (-1.0, 1.0)),
}
"""What an op's results lie within, whatever it reads."""

BETWEEN = ("ReduceMean", "ReduceMax", "ReduceMin", "Minimum", "Maximum", "Where")
"""Ops whose results lie within what all that they read do, as those do that only move it."""


def remove_limits(graph: Graph) -> Graph:
    """Drop Relu, Clip and Abs of what lies within their limits already: Relu(Sigmoid(x)) -> Sigmoid(x).

    Ranges are carried along the graph: from ops that bound their results, from limits of a Conv, through ops
    that only move. Exact: a limit that nothing exceeds changes nothing.
    """
    ranges: dict[str, Range] = {}

    # Filled as the graph is rebuilt, in order, so that what a node reads is bounded before the node.
    def rule(match: Match) -> Sequence[str] | None:
        node = match.node
        if node.op.name in ("Relu", "Abs", "Clip"):
            low, high = _read_limits(node) or POSITIVE
            value_range = ranges.get(node.inputs[0], ANY)
            same = match.builder.tensors[node.inputs[0]].storage == match.builder.storages.get(
                node.outputs[0]
            )
            if same and low <= value_range[0] and value_range[1] <= high:
                return [node.inputs[0]]
        # Rounding to stored integers may leave the range.
        if all(output not in match.builder.storages for output in node.outputs):
            # Further outputs hold something else, as indices do, unless the op has any number of one kind.
            bounded = node.outputs if node.op.outputs[0].endswith("*") else node.outputs[:1]
            ranges.update(dict.fromkeys(bounded, _bound_results(node, ranges, _is_exact(match))))
        return None

    return rewrite(graph, rule)


def _is_exact(match: Match) -> bool:
    """Tell whether results cannot leave the range that arithmetic gives them: integers wrap around."""
    return match.builder.tensors[match.node.inputs[0]].real.dtype.is_float


def _bound_results(node: Node, ranges: Mapping[str, Range], is_exact: bool) -> Range:
    attrs = node.attrs
    if limits := _read_limits(node):
        # Clip with min above max gives max for every element.
        return min(limits), limits[1]
    may_wrap = not (is_exact or node.op.moves or node.op.name in (*BETWEEN, "Relu"))
    # A window may see nothing but padding.
    may_see_nothing = isinstance(attrs, PoolAttributes) and (
        attrs.ceil or any((*attrs.pads_before, *attrs.pads_after))
    )
    if may_wrap or may_see_nothing:
        return ANY
    if node.op.name == "Mul" and node.inputs[0] == node.inputs[1]:
        return POSITIVE
    read = [ranges.get(i, ANY) for i in node.inputs[node.op.name == "Where" :]]
    if node.op.name == "Add":
        return read[0][0] + read[1][0], read[0][1] + read[1][1]
    if isinstance(attrs, PadAttributes) and attrs.mode == "constant":
        read.append((attrs.value, attrs.value))
    if node.op.moves or node.op.name in BETWEEN:
        used = read if node.op.inputs[0].endswith("*") or node.op.name in (*BETWEEN, "Pad") else read[:1]
        return min(r[0] for r in used), max(r[1] for r in used)
    return RANGES.get(node.op.name, ANY)


def _read_limits(node: Node) -> Range | None:
    """What a node limits its results to; None if it is no op that does."""
    attrs = node.attrs
    if isinstance(attrs, ClipAttributes):
        return attrs.min, attrs.max  # integers as they are: floats lose the low bits of 64
    return (attrs.low, attrs.high) if isinstance(attrs, ClampAttributes) else None
