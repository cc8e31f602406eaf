"""Composes operators of frameworks that the IR does not have out of ops that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.attributes import Attributes
from mace_core.ir import Shape
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.transpose import TransposeAttributes

Steps = list[tuple[str, Attributes]]
"""Ops of one operand with their attributes, each reading what the one before it makes.

None at all is the operand itself.
"""

Pairs = Sequence[tuple[int, int]]


def same_paddings(size: Shape, reach: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """Pad each axis so that the output is ceil(size / stride) long, with the odd element at the end.

    reach: how far the dilated kernel extends.
    """
    total = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(size, reach, strides, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def batch_to_space(shape: Shape, block: Shape, crops: Pairs) -> Steps:
    """Blocks of the batch become neighbours, then the edges are cut.

    ValueError if the batch does not divide.
    """
    rank, blocks = len(block), prod(block)
    if blocks < 1 or len(crops) != rank or rank >= len(shape) or shape[0] % blocks:
        raise ValueError(f"a batch of {shape[0]} in blocks of {list(block)}")
    batch, spatial, rest = shape[0] // blocks, shape[1 : rank + 1], shape[rank + 1 :]
    pairs = [axis for i in range(rank) for axis in (rank + 1 + i, i)]
    whole = (batch, *(s * b for s, b in zip(spatial, block, strict=True)), *rest)
    sizes = (
        batch,
        *(w - low - high for w, (low, high) in zip(whole[1 : rank + 1], crops, strict=True)),
        *rest,
    )
    return [
        ("Reshape", ReshapeAttributes((*block, batch, *spatial, *rest))),
        ("Transpose", TransposeAttributes((rank, *pairs, *range(2 * rank + 1, 2 * rank + 1 + len(rest))))),
        ("Reshape", ReshapeAttributes(whole)),
        (
            "Slice",
            SliceAttributes(
                starts=(0, *(low for low, _ in crops), *(0 for _ in rest)),
                sizes=sizes,
                steps=(1,) * len(whole),
            ),
        ),
    ]


def space_to_batch(shape: Shape, block: Shape, pads: Pairs) -> Steps:
    """The inverse: padded, then neighbours become blocks of the batch.

    ValueError if the space does not divide.
    """
    rank, rest = len(block), shape[len(block) + 1 :]
    if min(block, default=0) < 1 or len(pads) != rank or rank >= len(shape):
        raise ValueError(f"blocks of {list(block)} with {len(pads)} paddings")
    spatial = [d + low + high for d, (low, high) in zip(shape[1 : rank + 1], pads, strict=True)]
    if any(s % b for s, b in zip(spatial, block, strict=True)):
        raise ValueError(f"{spatial} in blocks of {list(block)}")
    before, after = ((0, *(pair[i] for pair in pads), *(0 for _ in rest)) for i in range(2))
    narrow = (s // b for s, b in zip(spatial, block, strict=True))
    pieces = [part for s, b in zip(spatial, block, strict=True) for part in (s // b, b)]
    inner = range(2 * rank + 1, 2 * rank + 1 + len(rest))
    return [
        ("Pad", PadAttributes(before, after)),
        ("Reshape", ReshapeAttributes((shape[0], *pieces, *rest))),
        ("Transpose", TransposeAttributes((*range(2, 2 * rank + 1, 2), 0, *range(1, 2 * rank, 2), *inner))),
        ("Reshape", ReshapeAttributes((shape[0] * prod(block), *narrow, *rest))),
    ]


@dataclass(frozen=True)
class StridedSlice:
    """The operands of a strided slice: begin, end and stride of each position, and masks."""

    begin: Shape
    end: Shape
    strides: Shape
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_mask: int = 0

    def steps(self, shape: Shape) -> Steps:
        """Apply it to an operand of this shape.

        ValueError where a position lies outside or too many are given.
        """
        picked: list[range] = []
        made: list[int] = []
        ellipses = [i for i in range(len(self.begin)) if self.ellipsis_mask >> i & 1]
        plain = sum(not (self.new_axis_mask | self.ellipsis_mask) >> i & 1 for i in range(len(self.begin)))
        if len(ellipses) > 1 or plain > len(shape):
            raise ValueError(f"{plain} positions and {len(ellipses)} ellipses of a rank of {len(shape)}")
        for i in range(len(self.begin)):
            if self.ellipsis_mask >> i & 1:
                free = shape[len(picked) : len(picked) + len(shape) - plain]
                picked += [range(d) for d in free]
                made += free
            elif self.new_axis_mask >> i & 1:
                made.append(1)
            else:
                picked.append(self._picked(i, shape[len(picked)]))
                made += [] if self.shrink_mask >> i & 1 else [len(picked[-1])]
        rest = shape[len(picked) :]
        picked += [range(d) for d in rest]
        starts = tuple(p.start if len(p) else 0 for p in picked)
        sliced = SliceAttributes(
            starts=starts, sizes=tuple(len(p) for p in picked), steps=tuple(p.step for p in picked)
        )
        return [("Slice", sliced), ("Reshape", ReshapeAttributes((*made, *rest)))]

    def _picked(self, i: int, size: int) -> range:
        """The places that position i takes of an axis."""
        begin, end, stride = self.begin[i], self.end[i], self.strides[i]
        if stride == 0:
            raise ValueError("a stride of 0")
        if self.shrink_mask >> i & 1:
            start = begin + size if begin < 0 else begin
            if not 0 <= start < size:
                raise ValueError(f"place {begin} of {size}")
            return range(start, start + 1)
        first = None if self.begin_mask >> i & 1 else begin
        last = None if self.end_mask >> i & 1 else end
        return range(*slice(first, last, stride).indices(size))


def apply(steps: Steps, operand: str, emit: Callable[[str, list[str], Attributes], str]) -> str:
    """Emit the steps one after another; returns what the last one makes."""
    for op, attrs in steps:
        operand = emit(op, [operand], attrs)
    return operand
