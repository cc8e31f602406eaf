"""Ops that put the elements of one tensor into another order, leave some out or repeat them: all are strided copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.ir import Node, Shape
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering
from mace_core.ops.depth_space import BlockAttributes, DepthToSpaceAttributes, split_to_depth, split_to_space
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.tile import ExpandAttributes, TileAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_target_cpu.lower.strided import Axis, copy, dense


def _permuted(node: Node, to: Lowering, shape: Shape, perm: Sequence[int]) -> None:
    steps = dense(shape)
    copy(node, to, [Axis(shape[p], steps[p]) for p in perm])


def transpose(node: Node, to: Lowering) -> None:
    """Reorder the axes; where only axes of one element change places, nothing moves."""
    _permuted(node, to, to.shape(node.inputs[0]), node.attributes(TransposeAttributes).perm)


def to_space(node: Node, to: Lowering) -> None:
    """Transpose with the channels split."""
    shape = to.shape(node.inputs[0])
    attrs = node.attributes(DepthToSpaceAttributes)
    _permuted(node, to, *split_to_space(shape, attrs.block, attrs.mode))


def to_depth(node: Node, to: Lowering) -> None:
    """Transpose with the spatial axes split."""
    block = node.attributes(BlockAttributes).block
    _permuted(node, to, *split_to_depth(to.shape(node.inputs[0]), block))


def slice_(node: Node, to: Lowering) -> None:
    """Step through every axis from its start."""
    steps = dense(to.shape(node.inputs[0]))
    attrs = node.attributes(SliceAttributes)
    starts, sizes, strides = attrs.starts, attrs.sizes, attrs.steps
    offset = sum(start * step for start, step in zip(starts, steps, strict=True))
    loops = [Axis(n, step * stride) for n, step, stride in zip(sizes, steps, strides, strict=True)]
    copy(node, to, loops, offset)


def tile(node: Node, to: Lowering) -> None:
    """Loop over the repeats, which stay in place, before each axis."""
    shape = to.shape(node.inputs[0])
    pairs = zip(shape, dense(shape), node.attributes(TileAttributes).repeats, strict=True)
    copy(node, to, [loop for count, step, repeat in pairs for loop in (Axis(repeat, 0), Axis(count, step))])


def expand(node: Node, to: Lowering) -> None:
    """Stay in place along every axis that x does not have or has only one element of."""
    shape, out = to.shape(node.inputs[0]), node.attributes(ExpandAttributes).shape
    padded = (1,) * (len(out) - len(shape)) + shape
    copy(
        node,
        to,
        [Axis(n, 0 if d == 1 else step) for n, d, step in zip(out, padded, dense(padded), strict=True)],
    )


LOWERINGS: Mapping[str, Lower] = {
    "Transpose": transpose,
    "DepthToSpace": to_space,
    "SpaceToDepth": to_depth,
    "Slice": slice_,
    "Tile": tile,
    "Expand": expand,
}
