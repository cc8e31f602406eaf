"""transposes-to-views: a Transpose that leaves every element where it lies in memory is a Reshape."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite


def transposes_to_views(graph: Graph) -> Graph:
    """Turn a Transpose that moves only axes of length 1 into a Reshape, which costs nothing.

    Exact: every element stays where it lies in memory.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name != "Transpose":
        return None
    shape, perm = match.shape(0), match.node.attributes(TransposeAttributes).perm
    # An axis of length 1 has no stride that matters, so the order in memory is that of the other axes alone.
    longer = [axis for axis in perm if shape[axis] != 1]
    if longer != sorted(longer):
        return None
    return match.emit("Reshape", match.node.inputs, ReshapeAttributes(tuple(shape[axis] for axis in perm)))
