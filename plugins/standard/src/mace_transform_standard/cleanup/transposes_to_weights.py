"""transposes-to-weights: the rows of a matrix take the order of its operand, which needs no Transpose."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mace_core.ir import Graph, Node, Shape
from mace_core.rewrite import Match, rewrite


def transposes_to_weights(graph: Graph) -> Graph:
    """Reorder the rows of a constant matrix instead of the axes that are flattened before it."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node, new = match.node, match.new
    if node.op.name != "MatMul" or node.inputs[1] not in new.weights or len(new.shape(node.inputs[1])) != 2:
        return None
    flat = match.sole_producer(0, "Reshape")
    turn = new.producer(flat.inputs[0]) if flat else None
    if flat is None or turn is None or turn.op.name != "Transpose":
        return None
    kept, matrix = _kept(new.shape(turn.outputs[0]), new.shape(flat.outputs[0])), new.tensors[node.inputs[1]]
    perm = _perm(turn)
    if kept is None or perm[:kept] != tuple(range(kept)) or (matrix.quant and matrix.quant.axis == 0):
        return None
    rows = new.shape(turn.outputs[0])[kept:]
    back = [perm.index(axis) - kept for axis in range(kept, len(perm))]
    array = new.weights[matrix.name].reshape(*rows, -1).transpose(*back, len(rows)).reshape(matrix.shape)
    x = new.one("Reshape", [turn.inputs[0]], flat.attrs, outputs=[new.fresh(f"{flat.outputs[0]}.flat")])
    return match.emit(
        node.op, [x, new.weight(matrix.name, array.copy(), matrix.quant), *node.inputs[2:]], node.attrs
    )


def _perm(node: Node) -> tuple[int, ...]:
    perm = node.attrs["perm"]
    assert isinstance(perm, tuple)
    return perm


def _kept(shape: Shape, flat: Shape) -> int | None:
    """How many axes stay in front of those that make up the last one of `flat`.

    None if it is made up otherwise.
    """
    if not flat or 0 in shape:
        return None
    found = [i for i in range(len(shape) + 1) if prod(shape[i:]) == flat[-1]]
    return found[0] if found else None
