"""Composes operators that several frameworks have, and the IR has not, out of ops of the IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.resize import Coordinates, ResizeAttributes, axis_taps
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.transpose import TransposeAttributes

Steps = list[tuple[str, Attributes]]
"""Ops of one operand with their attributes, each of which reads the result of the one before it.

No step at all stands for the operand itself.
"""

Pairs = Sequence[tuple[int, int]]


def same_paddings(size: Shape, reach: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """Return padding before and after each axis with which an output is ceil(size / stride) long.

    reach: length of the dilated kernel along each axis.
    """
    # TensorFlow's SAME and ONNX's SAME_UPPER: an odd number of elements puts one more at the end. A stride
    # larger than the kernel makes the number negative, and nothing is padded then.
    total = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(size, reach, strides, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def batch_to_space(shape: Shape, block: Shape, crops: Pairs) -> Steps:
    """Move blocks of the batch into the spatial axes, then crop these (BatchToSpaceND).

    Raises ValueError if the batch does not divide into blocks.
    """
    rank, blocks = len(block), prod(block)
    if blocks < 1 or len(crops) != rank or rank >= len(shape) or shape[0] % blocks:
        raise ValueError(f"a batch of {shape[0]} in blocks of {list(block)}")
    batch, spatial, rest = shape[0] // blocks, shape[1 : rank + 1], shape[rank + 1 :]
    # The operator orders the batch as [*block, batch], the position in the block slowest. Each spatial axis
    # is then followed by its part of the block, so that a Reshape merges the two.
    pairs = chain.from_iterable((rank + 1 + axis, axis) for axis in range(rank))
    uncropped = (batch, *(s * b for s, b in zip(spatial, block, strict=True)), *rest)
    sizes = (
        batch,
        *(size - low - high for size, (low, high) in zip(uncropped[1 : rank + 1], crops, strict=True)),
        *rest,
    )
    return [
        ("Reshape", ReshapeAttributes((*block, batch, *spatial, *rest))),
        ("Transpose", TransposeAttributes((rank, *pairs, *range(2 * rank + 1, 2 * rank + 1 + len(rest))))),
        ("Reshape", ReshapeAttributes(uncropped)),
        (
            "Slice",
            SliceAttributes(
                starts=(0, *(low for low, _ in crops), *(0 for _ in rest)),
                sizes=sizes,
                steps=(1,) * len(uncropped),
            ),
        ),
    ]


def space_to_batch(shape: Shape, block: Shape, pads: Pairs) -> Steps:
    """Pad the spatial axes, then move their blocks into the batch (SpaceToBatchND).

    Raises ValueError if the padded axes do not divide into blocks.
    """
    rank, rest = len(block), shape[len(block) + 1 :]
    if min(block, default=0) < 1 or len(pads) != rank or rank >= len(shape):
        raise ValueError(f"blocks of {list(block)} with {len(pads)} paddings")
    spatial = [d + low + high for d, (low, high) in zip(shape[1 : rank + 1], pads, strict=True)]
    if any(s % b for s, b in zip(spatial, block, strict=True)):
        raise ValueError(f"{spatial} in blocks of {list(block)}")
    before, after = ((0, *(pair[i] for pair in pads), *(0 for _ in rest)) for i in range(2))
    narrow = (s // b for s, b in zip(spatial, block, strict=True))
    # The inverse of batch_to_space: each spatial axis is split, and the parts of the block move in front of
    # the batch, so that they change slowest in it.
    pieces = chain.from_iterable((size // part, part) for size, part in zip(spatial, block, strict=True))
    inner = range(2 * rank + 1, 2 * rank + 1 + len(rest))
    return [
        ("Pad", PadAttributes(before, after)),
        ("Reshape", ReshapeAttributes((shape[0], *pieces, *rest))),
        ("Transpose", TransposeAttributes((*range(2, 2 * rank + 1, 2), 0, *range(1, 2 * rank, 2), *inner))),
        ("Reshape", ReshapeAttributes((shape[0] * prod(block), *narrow, *rest))),
    ]


@dataclass(frozen=True)
class StridedSlice:
    """The operands of StridedSlice, the operator that NumPy's indexing becomes.

    begin, end, strides: a range for each position, that is, for each item between the brackets.
    The masks have bit i set if position i has no begin or end, is an ellipsis, a new axis, or one index.
    """

    begin: Shape
    end: Shape
    strides: Shape
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_mask: int = 0

    def steps(self, shape: Shape) -> Steps:
        """Return the steps for an operand of this shape.

        Raises ValueError if an index is out of range, or if there are more positions than axes.
        """
        ranges: list[range] = []
        sizes: list[int] = []
        ellipses = [i for i in range(len(self.begin)) if self.ellipsis_mask >> i & 1]
        # Positions that take an axis of the operand each; an ellipsis takes the axes that are left.
        plain = sum(not (self.new_axis_mask | self.ellipsis_mask) >> i & 1 for i in range(len(self.begin)))
        if len(ellipses) > 1 or plain > len(shape):
            raise ValueError(f"{plain} positions and {len(ellipses)} ellipses of a rank of {len(shape)}")
        for i in range(len(self.begin)):
            if self.ellipsis_mask >> i & 1:
                free = shape[len(ranges) : len(ranges) + len(shape) - plain]
                ranges += [range(size) for size in free]
                sizes += free
            elif self.new_axis_mask >> i & 1:
                # Before the shrink mask is looked at: the other masks of a new axis are ignored.
                sizes.append(1)
            else:
                ranges.append(self._range(i, shape[len(ranges)]))
                sizes += [] if self.shrink_mask >> i & 1 else [len(ranges[-1])]
        rest = shape[len(ranges) :]
        ranges += [range(size) for size in rest]
        # The start of an empty range may lie outside of the axis, where Slice allows none.
        starts = tuple(r.start if len(r) else 0 for r in ranges)
        sliced = SliceAttributes(
            starts=starts, sizes=tuple(len(r) for r in ranges), steps=tuple(r.step for r in ranges)
        )
        # A Slice keeps all axes; the Reshape removes those of one index and adds the new ones.
        return [("Slice", sliced), ("Reshape", ReshapeAttributes((*sizes, *rest)))]

    def _range(self, i: int, size: int) -> range:
        """Return the indices that position i selects of an axis."""
        begin, end, stride = self.begin[i], self.end[i], self.strides[i]
        if stride == 0:
            raise ValueError("a stride of 0")
        if self.shrink_mask >> i & 1:
            # One index must be in range, while the ends of a range are clamped, as in Python.
            start = begin + size if begin < 0 else begin
            if not 0 <= start < size:
                raise ValueError(f"index {begin} of {size} elements")
            return range(start, start + 1)
        first = None if self.begin_mask >> i & 1 else begin
        last = None if self.end_mask >> i & 1 else end
        return range(*slice(first, last, stride).indices(size))


def nearest_places(size: int, resized: int, corners: bool, centers: bool) -> Array:
    """Return the element of an axis that is nearest to each of a resized axis, as TensorFlow's kernels do.

    corners: whether the outermost elements lie on each other.  centers: whether coordinates count from the
    centers of elements.
    """
    # In single precision with this order of operations, which decides where a coordinate is close to an
    # integer (resize_nearest_neighbor_op.cc, and TensorFlow Lite's reference/resize_nearest_neighbor.h).
    ratio = np.float32(size) / np.float32(max(resized, 1))
    if corners and resized > 1:
        ratio = np.float32(size - 1) / np.float32(resized - 1)
    numbers = np.arange(resized, dtype=np.float32) + np.float32(0.5 if centers else 0)
    shift = np.float32(0.5 if corners else 0)
    places: Array = np.minimum(np.floor(numbers * ratio + shift).astype(np.int64), size - 1)
    return places


def nearest_resize(
    attrs: ResizeAttributes, shape: Shape, corners: bool, centers: bool
) -> ResizeAttributes | None:
    """Return attributes of a Resize that selects the elements of `nearest_places`; None if there are none.

    attrs: sizes and scales.  shape: that of the operand.
    """
    # The IR divides by the scale where the kernels multiply by its inverse, so that the two round another way
    # for about one pair of sizes in twenty.
    coordinates: Coordinates = "half_pixel" if centers else "asymmetric"
    resize = replace(
        attrs,
        mode="nearest",
        coordinates="align_corners" if corners else coordinates,
        nearest="round_prefer_ceil" if corners or centers else "floor",
    )
    if min(attrs.scales) <= 0:
        return None
    for axis, (size, resized) in enumerate(zip(shape, attrs.sizes, strict=True)):
        places = nearest_places(size, resized, corners, centers)
        if size != resized and not np.array_equal(axis_taps(resize, axis, size).indices[:, 0], places):
            return None
    return resize


def apply(steps: Steps, operand: str, emit: Callable[[str, list[str], Attributes], str]) -> str:
    """Emit the steps one after another and return the last result."""
    for op, attrs in steps:
        operand = emit(op, [operand], attrs)
    return operand
