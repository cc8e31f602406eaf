"""remove-expands: element-wise ops stretch their operands themselves."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.ops.op import OpError
from mace_core.ops.shapes import keep
from mace_core.ops.tile import TileAttributes
from mace_core.rewrite import Match, rewrite

RANK = 6
"""Axes up to which kernels can be trusted to broadcast."""


def remove_expands(graph: Graph) -> Graph:
    """Let element-wise ops broadcast themselves.

    f(Expand(x), y) -> f(x, y), where the result keeps its shape.

    The same for a Tile of axes of length 1. Exact: each element has the same operands.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node = match.node
    # Ops with `keep` are those that compute element by element, so they broadcast.
    if node.op.move is not keep or len(node.inputs) < 2 or not all(node.inputs):
        return None
    inputs = list(node.inputs)
    for place, name in enumerate(node.inputs):
        source = _find_source(match, name)
        # One operand after another: where both are expanded, the result needs one of them to keep its
        # shape.
        trial = [*inputs[:place], source or name, *inputs[place + 1 :]]
        if source and _keeps_results(match, trial):
            inputs = trial
    return match.emit(node.op, inputs, node.attrs) if inputs != list(node.inputs) else None


def _find_source(match: Match, name: str) -> str | None:
    """What is stretched to make a tensor."""
    node = match.builder.producer(name)
    if node is None or node.op.name not in ("Expand", "Tile"):
        return None
    if match.builder.tensors[node.inputs[0]].storage != match.builder.tensors[name].storage:
        return None
    shape = match.builder.shape(node.inputs[0])
    repeats = node.attrs.repeats if isinstance(node.attrs, TileAttributes) else ()
    return node.inputs[0] if all(d == 1 or r == 1 for d, r in zip(shape, repeats, strict=False)) else None


def _keeps_results(match: Match, inputs: Sequence[str]) -> bool:
    old, changed = ([match.builder.tensors[i].real for i in names] for names in (match.node.inputs, inputs))
    try:
        results = match.node.op.infer(changed, match.node.attrs)
    except OpError:
        return False
    return results == match.node.op.infer(old, match.node.attrs) and len(results[0][1]) <= RANK
