"""Where the elements of a tensor lie that a kernel walks in another order: strides behind a flat index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import Shape


@dataclass(frozen=True)
class View:
    """The place of element `index` of a dense result in a tensor: offset + sum of coordinate * stride.

    dims: of the result, none of them 1, neighbors merged where one stride serves both; () for one element.
    strides: elements of the tensor from one coordinate to the next; 0 where it repeats, negative backwards.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def of(cls, loops: Iterable[tuple[int, int]], offset: int = 0) -> View:
        """Make a view of (count, stride) pairs, the outermost first."""
        merged: list[tuple[int, int]] = []
        for count, stride in loops:
            if count == 1:
                continue
            # Each axis less saves every element a division and a remainder.
            if merged and merged[-1][1] == stride * count:
                merged[-1] = (merged[-1][0] * count, stride)
            else:
                merged.append((count, stride))
        return cls(tuple(count for count, _ in merged), tuple(stride for _, stride in merged), offset)

    @classmethod
    def broadcast(cls, shape: Shape, out: Shape) -> View:
        """Return the view of a dense operand that is broadcast to the result's shape, as numpy does it."""
        padded = (1,) * (len(out) - len(shape)) + shape
        steps = dense(padded)
        return cls.of((n, 0 if size == 1 else step) for n, size, step in zip(out, padded, steps, strict=True))

    @property
    def is_identity(self) -> bool:
        """Whether element i of the result is element i of the tensor."""
        return self.offset == 0 and len(self.dims) < 2 and self.strides in ((), (1,))

    def can_load(self, width: int) -> bool:
        """Tell whether `width` elements from a multiple of it lie in a row, or are one and the same."""
        return not self.dims or (self.dims[-1] % width == 0 and self.strides[-1] in (0, 1))

    def is_aligned(self, width: int) -> bool:
        """Tell whether a view that loads `width` elements does so from a multiple of it, each time."""
        # The last stride is 0 or 1 wherever vectors are loaded, see `can_load`.
        steps = (self.offset, *self.strides[:-1])
        return all(step % width == 0 for step in steps)

    def locate(self, index: str) -> Code:
        """Return the C expression of the place for a flat index."""
        terms = []
        inner = 1
        for position, (count, stride) in enumerate(reversed(list(zip(self.dims, self.strides, strict=True)))):
            is_outermost = position == len(self.dims) - 1
            if stride:
                coordinate = f"{index} / {inner}u" if inner > 1 else index
                # The outermost coordinate needs no remainder.
                coordinate = coordinate if is_outermost else f"{coordinate} % {count}u"
                # Signed, because strides may be negative.
                terms.append(f"(int)({coordinate}) * {stride}" if stride != 1 else f"(int)({coordinate})")
            inner *= count
        offset = [str(self.offset)] if self.offset or not terms else []
        return Code(" + ".join([*offset, *reversed(terms)]))


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the elements from one index of each axis to the next where they lie without gaps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
