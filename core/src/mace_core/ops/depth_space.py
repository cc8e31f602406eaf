"""DepthToSpace and SpaceToDepth: channels as blocks of pixels, and back; x is [N, *spatial, C]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape, Tensor
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present

Mode = Literal["DCR", "CRD"]
"""What changes slowest to fastest within the channels: the block or the new depth (the words of ONNX's DepthToSpace)."""


@dataclass(frozen=True)
class BlockAttributes(Attributes):
    """block: pixels of a block along each spatial axis."""

    block: int


@dataclass(frozen=True)
class DepthToSpaceAttributes(BlockAttributes):
    """mode: the order of the channels."""

    mode: Mode = "DCR"


def _checked(inputs: Inputs, attrs: BlockAttributes) -> tuple[Tensor, int, int]:
    """The input, the block and how many pixels it has."""
    (x,) = present(inputs)
    block = attrs.block
    need(3 <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be 3 to 5")
    need(block >= 1, f"block is {block}; it must be a positive number")
    return x, block, block ** (len(x.shape) - 2)


def _infer_to_space(inputs: Inputs, attrs: DepthToSpaceAttributes) -> list[Spec]:
    x, block, pixels = _checked(inputs, attrs)
    need(x.shape[-1] % pixels == 0, f"{x.shape[-1]} channels do not divide into blocks of {pixels}")
    return [(x.dtype, (x.shape[0], *(d * block for d in x.shape[1:-1]), x.shape[-1] // pixels))]


def _infer_to_depth(inputs: Inputs, attrs: BlockAttributes) -> list[Spec]:
    x, block, pixels = _checked(inputs, attrs)
    divides = all(d % block == 0 for d in x.shape[1:-1])
    need(divides, f"spatial axes {list(x.shape[1:-1])} do not divide into blocks of {block}")
    return [(x.dtype, (x.shape[0], *(d // block for d in x.shape[1:-1]), x.shape[-1] * pixels))]


def split_to_space(shape: Shape, block: int, mode: Mode) -> tuple[Shape, tuple[int, ...]]:
    """The axes of DepthToSpace's input with its channels split, and the order in which its output has them."""
    axes = len(shape) - 2
    depth = shape[-1] // block**axes
    blocks = (block,) * axes
    apart = (*shape[:-1], depth, *blocks) if mode == "CRD" else (*shape[:-1], *blocks, depth)
    first = axes + (2 if mode == "CRD" else 1)
    pairs = (a for i in range(axes) for a in (1 + i, first + i))
    return apart, (0, *pairs, axes + 1 if mode == "CRD" else 2 * axes + 1)


def split_to_depth(shape: Shape, block: int) -> tuple[Shape, tuple[int, ...]]:
    """The axes of SpaceToDepth's input with its spatial axes split, and the order in which its output has them."""
    axes = len(shape) - 2
    apart = (shape[0], *(d for s in shape[1:-1] for d in (s // block, block)), shape[-1])
    return apart, (0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)


def _to_space(x: Array, attrs: DepthToSpaceAttributes) -> Array:
    block = attrs.block
    apart, order = split_to_space(x.shape, block, attrs.mode)
    depth = x.shape[-1] // block ** (x.ndim - 2)
    return x.reshape(apart).transpose(order).reshape(x.shape[0], *(d * block for d in x.shape[1:-1]), depth)


def _to_depth(x: Array, attrs: BlockAttributes) -> Array:
    block = attrs.block
    apart, order = split_to_depth(x.shape, block)
    depth = x.shape[-1] * block ** (x.ndim - 2)
    return x.reshape(apart).transpose(order).reshape(x.shape[0], *(d // block for d in x.shape[1:-1]), depth)


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
