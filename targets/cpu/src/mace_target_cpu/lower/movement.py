"""Ops that reorder, leave out or repeat the elements of one tensor, as strided copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.ir import Node, Shape
from mace_core.lowering import Lower, Lowering
from mace_core.ops.depth_space import BlockAttributes, DepthToSpaceAttributes, split_to_depth, split_to_space
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.tile import ExpandAttributes, TileAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_target_cpu.lower.strided import CopyLoop, copy, dense


def _permute(node: Node, lowering: Lowering, shape: Shape, perm: Sequence[int]) -> None:
    steps = dense(shape)
    copy(node, lowering, [CopyLoop(shape[p], steps[p]) for p in perm])


def transpose(node: Node, lowering: Lowering) -> None:
    """Reorder the axes; where only axes of one element change places, nothing moves."""
    _permute(node, lowering, lowering.shape(node.inputs[0]), node.attributes(TransposeAttributes).perm)


def to_space(node: Node, lowering: Lowering) -> None:
    """Transpose with the channels split."""
    shape = lowering.shape(node.inputs[0])
    attrs = node.attributes(DepthToSpaceAttributes)
    _permute(node, lowering, *split_to_space(shape, attrs.block, attrs.mode))


def to_depth(node: Node, lowering: Lowering) -> None:
    """Transpose with the spatial axes split."""
    block = node.attributes(BlockAttributes).block
    _permute(node, lowering, *split_to_depth(lowering.shape(node.inputs[0]), block))


def slice_(node: Node, lowering: Lowering) -> None:
    """Step through every axis from its start."""
    steps = dense(lowering.shape(node.inputs[0]))
    attrs = node.attributes(SliceAttributes)
    starts, sizes, strides = attrs.starts, attrs.sizes, attrs.steps
    # Where the first element lies; negative steps walk back from there.
    offset = sum(start * step for start, step in zip(starts, steps, strict=True))
    loops = [CopyLoop(n, step * stride) for n, step, stride in zip(sizes, steps, strides, strict=True)]
    copy(node, lowering, loops, offset)


def tile(node: Node, lowering: Lowering) -> None:
    """Loop over the repeats, which stay in place, before each axis."""
    shape = lowering.shape(node.inputs[0])
    pairs = zip(shape, dense(shape), node.attributes(TileAttributes).repeats, strict=True)
    loops: list[CopyLoop] = []
    for count, step, repeat in pairs:
        loops += (CopyLoop(repeat, 0), CopyLoop(count, step))
    copy(node, lowering, loops)


def expand(node: Node, lowering: Lowering) -> None:
    """Stay in place along every axis that x does not have or has only one element of."""
    shape, out = lowering.shape(node.inputs[0]), node.attributes(ExpandAttributes).shape
    # Shapes align at their last axes, as in numpy.
    padded = (1,) * (len(out) - len(shape)) + shape
    copy(
        node,
        lowering,
        [CopyLoop(n, 0 if d == 1 else step) for n, d, step in zip(out, padded, dense(padded), strict=True)],
    )


LOWERINGS: Mapping[str, Lower] = {
    "Transpose": transpose,
    "DepthToSpace": to_space,
    "SpaceToDepth": to_depth,
    "Slice": slice_,
    "Tile": tile,
    "Expand": expand,
}
