"""Windows that the hardware lacks, as windows that it has: copies of the data, moved against each other, and a small kernel over all of them.

Along one axis an op wants, for result t, the elements s * t + e of its input for each offset e of its kernel, zeros where there are none.
The hardware offers sums over 3 neighbours (9 along the only axis of one-dimensional data), padding of 0 to 2 on both sides alike, and
subsampling before a sum.  What a plan gives is exact: copies move integers, and a weight stands for one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import TypeVar

T = TypeVar("T")

PADS = (0, 1, 2)


@dataclass(frozen=True)
class Axis:
    """What an op wants along one axis.  size: of its input.  count: of its output.  offsets: of its taps, from the window's place."""

    size: int
    count: int
    stride: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Direct:
    """One sum at every position, every `stride`th of which is a result.

    length: of the kernel.  places: of each tap in it.  size: of the output before subsampling; extra: results after the last wanted.
    """

    length: int
    pad: int
    places: tuple[int, ...]
    size: int
    extra: int


@dataclass(frozen=True)
class Copied:
    """Copies of the input, moved by `moves`, subsampled, then one sum over all of them.

    pad, size: of the copies.  final_pad: of the sum.  places: for each tap the copy's index and the place in the kernel.
    """

    pad: int
    moves: tuple[int, ...]
    size: int
    final_pad: int
    places: tuple[tuple[int, int], ...]
    extra: int


@dataclass(frozen=True)
class Folded:
    """The same where the application makes the copies: copy i of length `size` has element stride * u + moves[i] at u."""

    moves: tuple[int, ...]
    size: int
    pad: int
    length: int
    places: tuple[tuple[int, int], ...]


def direct(axis: Axis, length: int) -> list[Direct]:
    """All kernels of this length that do it alone; the best first: those with no results too many."""
    found = []
    for pad in PADS:
        places = tuple(e + pad for e in axis.offsets)
        size = axis.size + 2 * pad - length + 1
        extra = -(-size // axis.stride) - axis.count
        if min(places) >= 0 and max(places) < length and extra >= 0:
            found.append(Direct(length, pad, places, size, extra))
    return sorted(found, key=lambda d: (d.extra, d.pad))


def together(ways: Sequence[Sequence[T]], key: Callable[[tuple[T, ...]], object]) -> tuple[T, ...] | None:
    """For each axis one of its ways, those that are best together by the key; None if an axis has none."""
    return min(product(*ways), key=key, default=None)  # type: ignore[arg-type]  # keys are tuples of numbers


def copied(axis: Axis, length: int) -> list[Copied]:
    """All ways by one set of copies."""
    found = []
    for pad, final in product(PADS, PADS):
        size = axis.size + 2 * pad - length + 1
        if size < 1:
            continue
        coarse = -(-size // axis.stride)
        extra = coarse + 2 * final - length + 1 - axis.count
        if extra < 0:
            continue
        options = [_choices(axis, e, pad, final, coarse, length) for e in axis.offsets]
        for moves in _fewest(options, length):
            places = tuple(next((moves.index(c), p) for c, p in option if c in moves) for option in options)
            found.append(Copied(pad, moves, size, final, places, extra))
    return found


def _choices(axis: Axis, offset: int, pad: int, final: int, coarse: int, length: int) -> list[tuple[int, int]]:
    """The copies and the places in the kernel that give a tap, padding of the last sum included."""
    found = []
    for copy, place in product(range(length), range(length)):
        if axis.stride * (place - final) + copy - pad != offset:
            continue
        beyond = (u for u in (t - final + place for t in range(axis.count)) if not 0 <= u < coarse)
        if all(not 0 <= axis.stride * u + copy - pad < axis.size for u in beyond):
            found.append((copy, place))
    return found


def _fewest(options: Sequence[Sequence[tuple[int, int]]], length: int) -> Iterator[tuple[int, ...]]:
    """The smallest set of copies that has one for each tap, if there is any."""
    if not all(options):
        return
    needed = [{c for c, _ in option} for option in options]
    for count in range(1, length + 1):
        for moves in combinations(range(length), count):
            if all(n.intersection(moves) for n in needed):
                yield moves
                return


def folded(axes: Sequence[Axis], length: int) -> tuple[Folded, ...]:
    """Few copies that the application can make so that one kernel of that length, or of 1, does the rest; the least data is best."""
    found = [tuple(_fold(axis, *way) for axis in axes) for way in {(length, length // 2), (length, 0), (1, 0)}]
    return min(found, key=lambda plan: (prod(len(f.moves) * f.size for f in plan), prod(len(f.moves) for f in plan)))


def _fold(axis: Axis, length: int, pad: int) -> Folded:
    """Copies for a kernel of a length: again and again the copy that serves most of the taps that are left."""
    left = set(axis.offsets)
    moves: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    candidates = sorted({e - axis.stride * (p - pad) for e in axis.offsets for p in range(length)}, key=abs)
    while left:
        served = {m: [(e, p) for e, p in _served(axis, m, length, pad) if e in left] for m in candidates}
        move = max(candidates, key=lambda m: len(served[m]))
        places.update({e: (len(moves), p) for e, p in served[move]})
        left.difference_update(e for e, _ in served[move])
        moves.append(move)
    return Folded(tuple(moves), axis.count + length - 1 - 2 * pad, pad, length, tuple(places[e] for e in axis.offsets))


def _served(axis: Axis, move: int, length: int, pad: int) -> Iterator[tuple[int, int]]:
    """The offsets that a copy has, with their places in the kernel; none where padding would stand for an element of the input."""
    size = axis.count + length - 1 - 2 * pad
    for place in range(length):
        beyond = (u for u in (t - pad + place for t in range(axis.count)) if not 0 <= u < size)
        if all(not 0 <= axis.stride * u + move < axis.size for u in beyond):
            yield axis.stride * (place - pad) + move, place
