"""Plans how windows that the hardware lacks are computed by windows that it has.

Along one axis an operation needs, for result t, the elements s * t + e of its input for each offset e of its
kernel, and zeros where there are none. The hardware offers sums over 3 neighbors (9 along the only axis of
one-dimensional data), padding of 0 to 2, equal on both sides, and subsampling before a sum. A plan makes
copies of the data, moved against each other, and sums over all of them with a small kernel. It is exact:
copies move integers, and each weight stands for one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import TypeVar


def list_kernel_lengths(rank: int) -> tuple[int, ...]:
    """Lengths of kernels that the hardware has; rank: of the data with batch and channels."""
    return (1, 3) if rank == 4 else tuple(range(1, 10))


T = TypeVar("T")

PADS = (0, 1, 2)

NEIGHBOURS = 3
"""The kernel of an image, and a short one along a line, which loses fewer elements at the ends."""

Ways = Sequence[tuple[int, int]]
"""Ways to have an element: the move or the index of a copy, and the place in the kernel that takes it."""


@dataclass(frozen=True)
class WindowAxis:
    """What an op wants along one axis.

    size: of its input.  count: of its output.  offsets: of its taps, from the window's place.
    """

    size: int
    count: int
    stride: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class DirectPlan:
    """One sum at every position, every `stride`th of which is a result.

    length: of the kernel.  places: of each tap in it.  lead, extra: results before the first wanted, and
    after the last.
    """

    length: int
    pad: int
    places: tuple[int, ...]
    lead: int
    extra: int


@dataclass(frozen=True)
class CopyStage:
    """Copies of copies of the input.

    made: for each the copy before that it is of, and the place in the kernel that takes it.
    """

    pad: int
    made: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CopyPlan:
    """Copies of the input, moved against each other in stages, subsampled, then one sum over all of them.

    copying: the length of the kernels that copy.  length, pad: of the sum's kernel.
    places: for each tap the copy's index and the place in the kernel.
    """

    stages: tuple[CopyStage, ...]
    copying: int
    length: int
    pad: int
    places: Ways

    @property
    def copies(self) -> int:
        """How many there are at most."""
        return max(len(stage.made) for stage in self.stages)


@dataclass(frozen=True)
class FoldPlan:
    """The same where the application makes the copies: copy i of length `size` has element stride * u + moves[i] at u."""

    moves: tuple[int, ...]
    size: int
    pad: int
    length: int
    places: Ways


def plan_direct(axis: WindowAxis, length: int) -> list[DirectPlan]:
    """All kernels of this length that do it alone, some with results too many."""
    found = []
    for pad, lead in product(PADS, (0, 1) if axis.stride > 1 else (0,)):
        places = tuple(e + pad - axis.stride * lead for e in axis.offsets)
        extra = -(-(axis.size + 2 * pad - length + 1) // axis.stride) - lead - axis.count
        if min(places) >= 0 and max(places) < length and extra >= 0:
            found.append(DirectPlan(length, pad, places, lead, extra))
    return found


def choose_together(
    ways: Sequence[Sequence[T]], key: Callable[[tuple[T, ...]], object]
) -> tuple[T, ...] | None:
    """For each axis one of its ways, those that are best together by the key; None if an axis has none."""
    return min(product(*ways), key=key, default=None)  # type: ignore[arg-type]  # keys are tuples of numbers


def plan_copies(axis: WindowAxis, lengths: Sequence[int], depth: int) -> list[CopyPlan]:
    """All ways by so many stages of copies that leave no result too many.

    lengths: of kernels that the hardware has, the longest last.
    """
    found = []
    for pads, copying, last in product(
        product(PADS, repeat=depth + 1), {min(NEIGHBOURS, lengths[-1]), lengths[-1]}, lengths
    ):
        size = axis.size + 2 * sum(pads[:-1]) - depth * (copying - 1)
        if size >= 1 and -(-size // axis.stride) + 2 * pads[-1] - last + 1 == axis.count:
            found.append(_plan_stages(axis, (copying, last), pads))
    return [plan for plan in found if plan]


def _plan_stages(axis: WindowAxis, lengths: tuple[int, int], pads: Sequence[int]) -> CopyPlan | None:
    """The way with the fewest copies for given padding, that of the sum last.

    lengths: of the kernels that copy, and that sum.
    """
    length, last = lengths
    levels: list[dict[int, Ways]] = [{0: ()}]
    size = axis.size
    for pad in pads[:-1]:
        grown = size + 2 * pad - length + 1
        levels.append(_list_moves(axis.size, levels[-1], (size, grown, pad), length))
        size = grown
    chosen = _choose_fewest(
        [_list_taps(axis, e, levels[-1], (-(-size // axis.stride), pads[-1], last)) for e in axis.offsets]
    )
    if chosen is None:
        return None
    stages, places = _trace_stages(chosen, levels, pads)
    return CopyPlan(stages, length, last, pads[-1], places)


def _list_moves(
    size: int, before: Mapping[int, Ways], grid: tuple[int, int, int], length: int
) -> dict[int, Ways]:
    """The moves that a stage can make, each with its ways.  size: of the input.

    grid: of the copies before, of these, and the padding.

    A copy with move m has the input's element u + m at u, and zero where there is none; so must what a stage
    takes from its padding be.
    """
    old, new, pad = grid
    found: dict[int, list[tuple[int, int]]] = {}
    for move, place in product(before, range(length)):
        beyond = (v for v in (u + place - pad for u in range(new)) if not 0 <= v < old)
        if all(not 0 <= v + move < size for v in beyond):
            found.setdefault(move + place - pad, []).append((move, place))
    return {move: tuple(ways) for move, ways in found.items()}


def _list_taps(
    axis: WindowAxis, offset: int, moves: Mapping[int, Ways], window: tuple[int, int, int]
) -> Ways:
    """The copies and the places in the last kernel that give a tap, padding included.

    window: size, padding and kernel of the sum.
    """
    (coarse, pad, length), stride, count = window, axis.stride, axis.count
    found = []
    for move, place in product(moves, range(length)):
        if stride * (place - pad) + move != offset:
            continue
        beyond = (u for u in (t - pad + place for t in range(count)) if not 0 <= u < coarse)
        if all(not 0 <= stride * u + move < axis.size for u in beyond):
            found.append((move, place))
    return found


def _trace_stages(
    chosen: Ways, levels: Sequence[Mapping[int, Ways]], pads: Sequence[int]
) -> tuple[tuple[CopyStage, ...], Ways]:
    """From what the sum takes, stage by stage, what must be copied before.

    With the sum's copies by their index.
    """
    needed = tuple(dict.fromkeys(move for move, _ in chosen))
    places: Ways = tuple((needed.index(move), place) for move, place in chosen)
    stages: list[CopyStage] = []
    for level, pad in zip(reversed(levels[1:]), reversed(pads[:-1]), strict=True):
        ways = _choose_fewest([level[move] for move in needed])
        assert ways is not None  # each move was found with its ways
        sources = tuple(dict.fromkeys(move for move, _ in ways))
        stages.insert(0, CopyStage(pad, tuple((sources.index(move), place) for move, place in ways)))
        needed = sources
    return tuple(stages), places


MAX_COMBINED = 4
"""Copies of which every choice is tried; more are taken as they come."""


def _choose_fewest(options: Sequence[Ways]) -> Ways | None:
    """For each element one of its ways, so that they need few copies; None if an element has none."""
    if not all(options):
        return None
    moves = sorted({move for option in options for move, _ in option}, key=abs)
    for count in range(1, MAX_COMBINED + 1):
        for kept in combinations(moves, count):
            if all(any(move in kept for move, _ in option) for option in options):
                return [next(way for way in option if way[0] in kept) for option in options]
    return [min(option, key=lambda way: moves.index(way[0])) for option in options]


def plan_fold(axes: Sequence[WindowAxis], length: int) -> tuple[FoldPlan, ...]:
    """Few copies that the application can make so that one kernel of that length, or of 1, does the rest.

    The least data is best.
    """
    found = [
        tuple(_fold_axis(axis, *way) for axis in axes) for way in {(length, length // 2), (length, 0), (1, 0)}
    ]
    return min(
        found, key=lambda plan: (prod(len(f.moves) * f.size for f in plan), prod(len(f.moves) for f in plan))
    )


def _fold_axis(axis: WindowAxis, length: int, pad: int) -> FoldPlan:
    """Copies for a kernel of a length: again and again the copy that serves most of the taps that are left."""
    left = set(axis.offsets)
    moves: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    candidates = sorted({e - axis.stride * (p - pad) for e in axis.offsets for p in range(length)}, key=abs)
    while left:
        served = {m: [(e, p) for e, p in _list_served(axis, m, length, pad) if e in left] for m in candidates}
        move = max(candidates, key=lambda m: len(served[m]))
        places.update({e: (len(moves), p) for e, p in served[move]})
        left.difference_update(e for e, _ in served[move])
        moves.append(move)
    return FoldPlan(
        tuple(moves), axis.count + length - 1 - 2 * pad, pad, length, tuple(places[e] for e in axis.offsets)
    )


def _list_served(axis: WindowAxis, move: int, length: int, pad: int) -> Iterator[tuple[int, int]]:
    """The offsets that a copy has, with their places in the kernel.

    None where padding would stand for an element of the input.
    """
    size = axis.count + length - 1 - 2 * pad
    for place in range(length):
        beyond = (u for u in (t - pad + place for t in range(axis.count)) if not 0 <= u < size)
        if all(not 0 <= axis.stride * u + move < axis.size for u in beyond):
            yield axis.stride * (place - pad) + move, place
