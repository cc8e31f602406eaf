"""remove-identity: nodes whose result is their input, and chains of nodes that one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.ir import Graph
from mace_core.ops.cast import CastAttributes
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.tile import ExpandAttributes, TileAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite


def remove_identity(graph: Graph) -> Graph:
    """Drop nodes that return their input: Identity, Cast to the same type, Reshape to the same shape ...

    Slices of everything, Pads by nothing, Tiles by one, Concats of one tensor and Transposes in order too.
    Merges Reshape(Reshape(x)) -> Reshape(x). Exact: a node that stores its result otherwise rounds, and
    stays.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node = match.node
    feeder = match.builder.producer(node.inputs[0]) if node.op.name == "Reshape" else None
    # A Reshape looks at the number of elements only, so the last of a chain decides.
    if (
        feeder
        and feeder.op.name == "Reshape"
        and match.builder.tensors[feeder.inputs[0]].storage == match.builder.tensors[node.inputs[0]].storage
    ):
        return match.emit("Reshape", feeder.inputs, node.attrs)
    is_identity = SAME.get(node.op.name)
    return [node.inputs[0]] if is_identity and _keeps_storage(match) and is_identity(match) else None


def _keeps_storage(match: Match) -> bool:
    return match.builder.tensors[match.node.inputs[0]].storage == match.builder.storages.get(
        match.node.outputs[0]
    )


def _is_identity(match: Match) -> bool:
    return True


def _keeps_type(match: Match) -> bool:
    # A Cast of a quantized tensor converts the numbers, not what stores them.
    tensor = match.builder.tensors[match.node.inputs[0]]
    return tensor.quant is None and tensor.dtype.value == match.node.attributes(CastAttributes).to


def _keeps_shape(match: Match) -> bool:
    return match.shape(0) == match.node.attributes(ReshapeAttributes).shape


def _expands_nothing(match: Match) -> bool:
    return match.shape(0) == match.node.attributes(ExpandAttributes).shape


def _is_full_slice(match: Match) -> bool:
    attrs = match.node.attributes(SliceAttributes)
    return attrs.sizes == match.shape(0) and all(step == 1 for step in attrs.steps)


def _repeats_nothing(match: Match) -> bool:
    return all(r == 1 for r in match.node.attributes(TileAttributes).repeats)


def _pads_nothing(match: Match) -> bool:
    attrs = match.node.attributes(PadAttributes)
    return not any((*attrs.before, *attrs.after))


def _has_one_input(match: Match) -> bool:
    return len(match.node.inputs) == 1


def _keeps_order(match: Match) -> bool:
    return list(match.node.attributes(TransposeAttributes).perm) == list(range(len(match.shape(0))))


SAME: Mapping[str, Callable[[Match], bool]] = {
    "Identity": _is_identity,
    "Cast": _keeps_type,
    "Reshape": _keeps_shape,
    "Expand": _expands_nothing,
    "Slice": _is_full_slice,
    "Tile": _repeats_nothing,
    "Pad": _pads_nothing,
    "Concat": _has_one_input,
    "Transpose": _keeps_order,
}
"""Op -> whether a node of it returns its first input unchanged."""
