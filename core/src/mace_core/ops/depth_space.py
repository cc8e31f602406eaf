"""DepthToSpace and SpaceToDepth: channels as blocks of pixels, and back; x is [N, *spatial, C]."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Literal

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape, Tensor
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present

Mode = Literal["DCR", "CRD"]
"""Order within the channels, slowest first, in the terms of ONNX's DepthToSpace.

"DCR": the position in the block, then the new depth; "CRD": the new depth, then the position in the block.
"""


@dataclass(frozen=True)
class BlockAttributes(Attributes):
    """block: pixels of a block along each spatial axis."""

    block: int


@dataclass(frozen=True)
class DepthToSpaceAttributes(BlockAttributes):
    """mode: the order of the channels."""

    mode: Mode = "DCR"


def _check_operand(inputs: Inputs, attrs: BlockAttributes) -> tuple[Tensor, int, int]:
    """Return the input, the block's size along one axis, and the number of its pixels."""
    (x,) = present(inputs)
    block = attrs.block
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    need(block >= 1, f"block is {block}; it must be a positive number")
    return x, block, block ** (len(x.shape) - 2)


def _infer_to_space(inputs: Inputs, attrs: DepthToSpaceAttributes) -> list[Spec]:
    x, block, pixels = _check_operand(inputs, attrs)
    need(x.shape[-1] % pixels == 0, f"{x.shape[-1]} channels do not divide into blocks of {pixels}")
    return [(x.dtype, (x.shape[0], *(d * block for d in x.shape[1:-1]), x.shape[-1] // pixels))]


def _infer_to_depth(inputs: Inputs, attrs: BlockAttributes) -> list[Spec]:
    x, block, pixels = _check_operand(inputs, attrs)
    divides = all(d % block == 0 for d in x.shape[1:-1])
    need(divides, f"spatial axes {list(x.shape[1:-1])} do not divide into blocks of {block}")
    return [(x.dtype, (x.shape[0], *(d // block for d in x.shape[1:-1]), x.shape[-1] * pixels))]


def split_to_space(shape: Shape, block: int, mode: Mode) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape of DepthToSpace's input with split channels, and the axes of its output in order."""
    axes = len(shape) - 2
    depth = shape[-1] // block**axes
    blocks = (block,) * axes
    if mode == "CRD":
        split, first_block, depth_axis = (*shape[:-1], depth, *blocks), axes + 2, axes + 1
    else:
        split, first_block, depth_axis = (*shape[:-1], *blocks, depth), axes + 1, 2 * axes + 1
    # Each spatial axis is followed by its part of the block, so that a reshape merges the two.
    pairs = ((1 + axis, first_block + axis) for axis in range(axes))
    return split, (0, *chain.from_iterable(pairs), depth_axis)


def split_to_depth(shape: Shape, block: int) -> tuple[Shape, tuple[int, ...]]:
    """Return the shape of SpaceToDepth's input with its spatial axes split, and the output's axis order."""
    axes = len(shape) - 2
    pairs = ((size // block, block) for size in shape[1:-1])
    split = (shape[0], *chain.from_iterable(pairs), shape[-1])
    return split, (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)


def _to_space(x: Array, attrs: DepthToSpaceAttributes) -> Array:
    block = attrs.block
    split, order = split_to_space(x.shape, block, attrs.mode)
    depth = x.shape[-1] // block ** (x.ndim - 2)
    spatial = (size * block for size in x.shape[1:-1])
    return x.reshape(split).transpose(order).reshape(x.shape[0], *spatial, depth)


def _to_depth(x: Array, attrs: BlockAttributes) -> Array:
    block = attrs.block
    split, order = split_to_depth(x.shape, block)
    depth = x.shape[-1] * block ** (x.ndim - 2)
    spatial = (size // block for size in x.shape[1:-1])
    return x.reshape(split).transpose(order).reshape(x.shape[0], *spatial, depth)


OPS = (
    Op(
        "DepthToSpace",
        ("x",),
        ("y",),
        _infer_to_space,
        _to_space,
        DepthToSpaceAttributes,
        moves=True,
    ),
    Op("SpaceToDepth", ("x",), ("y",), _infer_to_depth, _to_depth, BlockAttributes, moves=True),
)
