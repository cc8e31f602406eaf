"""remove-identity: nodes whose result is their input, and chains of nodes that one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.ir import Graph
from mace_core.rewrite import Match, rewrite


def remove_identity(graph: Graph) -> Graph:
    """Drop Identity, Cast to the same type, Reshape to the same shape, whole Slices, empty Pads ..."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node = match.node
    feeder = match.new.producer(node.inputs[0]) if node.op.name == "Reshape" else None
    if (
        feeder
        and feeder.op.name == "Reshape"
        and match.new.tensors[feeder.inputs[0]].storage == match.new.tensors[node.inputs[0]].storage
    ):
        return match.emit("Reshape", feeder.inputs, node.attrs)
    same = SAME.get(node.op.name)
    return [node.inputs[0]] if same and _same_storage(match) and same(match) else None


def _same_storage(match: Match) -> bool:
    return match.new.tensors[match.node.inputs[0]].storage == match.new.storages.get(match.node.outputs[0])


def _always(match: Match) -> bool:
    return True


def _same_type(match: Match) -> bool:
    tensor = match.new.tensors[match.node.inputs[0]]
    return tensor.quant is None and tensor.dtype.value == match.node.attrs["to"]


def _same_shape(match: Match) -> bool:
    return match.shape(0) == match.node.attrs["shape"]


def _whole(match: Match) -> bool:
    attrs = match.node.attrs
    return attrs["sizes"] == match.shape(0) and all(step == 1 for step in _ints(match, "steps"))


def _no_repeats(match: Match) -> bool:
    return all(r == 1 for r in _ints(match, "repeats"))


def _no_padding(match: Match) -> bool:
    return not any((*_ints(match, "before"), *_ints(match, "after")))


def _alone(match: Match) -> bool:
    return len(match.node.inputs) == 1


def _in_order(match: Match) -> bool:
    return list(_ints(match, "perm")) == list(range(len(match.shape(0))))


def _ints(match: Match, key: str) -> tuple[int, ...]:
    value = match.node.attrs[key]
    assert isinstance(value, tuple)
    return value


SAME: Mapping[str, Callable[[Match], bool]] = {
    "Identity": _always,
    "Cast": _same_type,
    "Reshape": _same_shape,
    "Expand": _same_shape,
    "Slice": _whole,
    "Tile": _no_repeats,
    "Pad": _no_padding,
    "Concat": _alone,
    "Transpose": _in_order,
}
"""Op -> whether a node of it returns its first input unchanged."""
