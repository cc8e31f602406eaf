"""merge-transposes: two Transposes with a Reshape between them are one where axes stay together."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.op import Perm
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.layout.axis_groups import axis_groups


def merge_transposes(graph: Graph) -> Graph:
    """Lift a Transpose through the Reshape before it to the Transpose before that."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node, new = match.node, match.new
    shaped = match.sole_producer(0, "Reshape") if node.op.name == "Transpose" else None
    first = new.producer(shaped.inputs[0]) if shaped else None
    if (
        shaped is None
        or first is None
        or first.op.name != "Transpose"
        or match.uses.get(shaped.inputs[0], 1) != 1
    ):
        return None
    lifted = _lifted(match, _perm(node), shaped)
    if lifted is None:
        return None
    before = _perm(first)
    once = new.one(
        "Transpose",
        first.inputs,
        {"perm": tuple(before[p] for p in lifted)},
        outputs=[new.fresh(node.outputs[0])],
        like=node,
    )
    shape = new.shape(shaped.outputs[0])
    return match.emit("Reshape", [once], {"shape": tuple(shape[p] for p in _perm(node))})


def _lifted(match: Match, perm: Perm, shaped: Node) -> Perm | None:
    """The permutation of the axes before a Reshape that does what one behind it does.

    None if it tears apart what was one axis.
    """
    groups = axis_groups(match.new.shape(shaped.inputs[0]), match.new.shape(shaped.outputs[0]))
    if groups is None:
        return None
    places = [[perm.index(axis) for axis in after] for _, after in groups]
    if any(p != list(range(p[0], p[0] + len(p))) for p in places if p):
        return None
    order = sorted(range(len(groups)), key=lambda i: places[i][0] if places[i] else -1)
    return tuple(axis for i in order for axis in groups[i][0])


def _perm(node: Node) -> Perm:
    perm = node.attrs["perm"]
    assert isinstance(perm, tuple)
    return perm
