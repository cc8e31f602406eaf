"""Ops that reorder, leave out or repeat the elements of one tensor: maps with strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.ir import Node, Shape
from mace_core.lowering import Lower, Lowering
from mace_core.ops.depth_space import BlockAttributes, DepthToSpaceAttributes, split_to_depth, split_to_space
from mace_core.ops.shapes import axis_of
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.ops.tile import ExpandAttributes, TileAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_target_opencl.lower.maps import Map, enqueue_map_to
from mace_target_opencl.views import View, dense


def view(node: Node, lowering: Lowering) -> None:
    """Share the input's bytes where possible, else copy them."""
    elements = lowering.tensors[node.inputs[0]].elements
    move(node, lowering, View.of([(elements, 1)]))


def move(node: Node, lowering: Lowering, source: View, output: int = 0) -> None:
    """Fill a result with the elements of the first input that a view shows; share bytes if they are all."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[output]]
    # The view of a part that begins at the first element is the identity as well.
    if y.elements == x.elements and source.is_identity and lowering.may_alias(y.name, x.name):
        lowering.alias(y.name, x.name)
        return
    enqueue_map_to(lowering, node, Map(x.name, source), y.name)


def _permute(node: Node, lowering: Lowering, shape: Shape, perm: Sequence[int]) -> None:
    steps = dense(shape)
    move(node, lowering, View.of((shape[axis], steps[axis]) for axis in perm))


def transpose(node: Node, lowering: Lowering) -> None:
    """Reorder the axes; where only axes of one element change places, nothing moves."""
    _permute(node, lowering, lowering.shape(node.inputs[0]), node.attributes(TransposeAttributes).perm)


def to_space(node: Node, lowering: Lowering) -> None:
    """Transpose with the channels split."""
    attrs = node.attributes(DepthToSpaceAttributes)
    _permute(node, lowering, *split_to_space(lowering.shape(node.inputs[0]), attrs.block, attrs.mode))


def to_depth(node: Node, lowering: Lowering) -> None:
    """Transpose with the spatial axes split."""
    block = node.attributes(BlockAttributes).block
    _permute(node, lowering, *split_to_depth(lowering.shape(node.inputs[0]), block))


def slice_(node: Node, lowering: Lowering) -> None:
    """Step through every axis from its start; negative steps walk back."""
    steps = dense(lowering.shape(node.inputs[0]))
    attrs = node.attributes(SliceAttributes)
    offset = sum(start * step for start, step in zip(attrs.starts, steps, strict=True))
    loops = zip(attrs.sizes, (a * b for a, b in zip(steps, attrs.steps, strict=True)), strict=True)
    move(node, lowering, View.of(loops, offset))


def split(node: Node, lowering: Lowering) -> None:
    """One map for each part."""
    shape, attrs = lowering.shape(node.inputs[0]), node.attributes(SplitAttributes)
    axis, steps = axis_of(attrs.axis, len(shape)), dense(shape)
    start = 0
    for number, size in enumerate(attrs.sizes):
        part = (*shape[:axis], size, *shape[axis + 1 :])
        move(node, lowering, View.of(zip(part, steps, strict=True), start * steps[axis]), number)
        start += size


def tile(node: Node, lowering: Lowering) -> None:
    """Loop over the repeats, which stay in place, before each axis."""
    shape = lowering.shape(node.inputs[0])
    loops: list[tuple[int, int]] = []
    for count, step, repeat in zip(shape, dense(shape), node.attributes(TileAttributes).repeats, strict=True):
        loops += ((repeat, 0), (count, step))
    move(node, lowering, View.of(loops))


def expand(node: Node, lowering: Lowering) -> None:
    """Stay in place along every axis that x does not have or has only one element of."""
    out = node.attributes(ExpandAttributes).shape
    move(node, lowering, View.broadcast(lowering.shape(node.inputs[0]), out))


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(("Identity", "Reshape"), view),
    "Transpose": transpose,
    "DepthToSpace": to_space,
    "SpaceToDepth": to_depth,
    "Slice": slice_,
    "Split": split,
    "Tile": tile,
    "Expand": expand,
}
