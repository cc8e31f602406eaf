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
from itertools import chain, combinations, product
from math import prod
from typing import TypeVar

from mace_frontend_ai8x.network import Operation
from mace_target_max78000.device import KERNELS, MAX_KERNEL_1D, MAX_PADS

T = TypeVar("T")

# Padding that lines and images have both; Conv1d could pad by 3 as well.
PADS = tuple(range(MAX_PADS[Operation.CONV2D] + 1))

NEIGHBORS = 3
"""Length of an image's kernel, and of a short one along a line, which loses fewer elements at the ends."""

MAX_COMBINED = 4
"""Copies of which every combination is tried.

The number of combinations grows exponentially; with more copies the nearest ones are taken.
"""

IMAGE_RANK = 4
"""Axes of an image: batch, rows, columns, channels."""

Ways = Sequence[tuple[int, int]]
"""Ways to have an element: the move or the index of a copy, and the place in the kernel that takes it."""


@dataclass(frozen=True)
class WindowAxis:
    """What an operation needs along one axis.

    size, count: elements of its input and output.  offsets: of its taps, from the window's place.
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

    sources: for each copy the one of the stage before that it is made of, and the place in the kernel that
    takes it.
    """

    pad: int
    sources: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CopyPlan:
    """Copies of the input, moved against each other in stages, subsampled, then one sum over all of them.

    copying: length of the kernels that copy.  length, pad: of the sum's kernel.
    places: for each tap the copy's index and the place in the kernel.
    """

    stages: tuple[CopyStage, ...]
    copying: int
    length: int
    pad: int
    places: Ways

    @property
    def copies(self) -> int:
        """The largest number of copies that a stage makes."""
        return max(len(stage.sources) for stage in self.stages)


@dataclass(frozen=True)
class FoldPlan:
    """Copies that the application makes: copy i, of `size` elements, has element stride * u + moves[i] at u.

    pad, length: of the kernel that sums over them.  places: for each tap the copy's index and the place in
    the kernel.
    """

    moves: tuple[int, ...]
    size: int
    pad: int
    length: int
    places: Ways


@dataclass(frozen=True)
class _Window:
    """A sum over copies: elements of a copy that it runs over, its padding, the length of its kernel."""

    size: int
    pad: int
    length: int

    def outside(self, place: int, count: int) -> list[int]:
        """List the positions outside the copy that one place of the kernel takes for `count` results."""
        positions = range(place - self.pad, place - self.pad + count)
        return [u for u in positions if not 0 <= u < self.size]


def list_kernel_lengths(rank: int) -> tuple[int, ...]:
    """List the lengths of kernels that the hardware has; rank: of the data with batch and channels.

    An image has kernels of 1x1 and 3x3, because a word of weight memory holds nine weights; a line may use
    all nine along its only axis.
    """
    if rank == IMAGE_RANK:
        return tuple(rows for rows, _ in KERNELS[Operation.CONV2D])
    return tuple(range(1, MAX_KERNEL_1D + 1))


def plan_direct(axis: WindowAxis, length: int) -> list[DirectPlan]:
    """List the plans with a single kernel of this length, some of them with results too many."""
    plans = []
    # The hardware subsamples from its first position on. Where that is not a result, the kernel may begin
    # one stride earlier, and the first result is dropped.
    leads = (0, 1) if axis.stride > 1 else (0,)
    for pad, lead in product(PADS, leads):
        places = tuple(e + pad - axis.stride * lead for e in axis.offsets)
        positions = axis.size + 2 * pad - length + 1
        extra = -(-positions // axis.stride) - lead - axis.count
        if min(places) >= 0 and max(places) < length and extra >= 0:
            plans.append(DirectPlan(length, pad, places, lead, extra))
    return plans


def choose_together(
    ways: Sequence[Sequence[T]], key: Callable[[tuple[T, ...]], object]
) -> tuple[T, ...] | None:
    """Choose for each axis one of its ways, together the best by the key; None if an axis has none."""
    # Not axis by axis: both axes share one kernel and one padding where that saves a layer.
    return min(product(*ways), key=key, default=None)  # type: ignore[arg-type]  # keys are tuples of numbers


def plan_copies(axis: WindowAxis, lengths: Sequence[int], depth: int) -> list[CopyPlan]:
    """List all plans by so many stages of copies that leave no result too many.

    lengths: of kernels that the hardware has, the longest last.
    """
    plans = []
    # A long kernel reaches further in a stage, a short one loses fewer elements at the ends.
    copying_lengths = {min(NEIGHBORS, lengths[-1]), lengths[-1]}
    for pads, copying, last in product(product(PADS, repeat=depth + 1), copying_lengths, lengths):
        size = axis.size + 2 * sum(pads[:-1]) - depth * (copying - 1)
        subsampled = -(-size // axis.stride)
        if size < 1 or subsampled + 2 * pads[-1] - last + 1 != axis.count:
            continue
        plan = _plan_stages(axis, (copying, last), pads)
        if plan:
            plans.append(plan)
    return plans


def _plan_stages(axis: WindowAxis, lengths: tuple[int, int], pads: Sequence[int]) -> CopyPlan | None:
    """Find the plan with the fewest copies for given padding, that of the sum last.

    lengths: of the kernels that copy, and of the one that sums.
    """
    copying, last = lengths
    # Forward: all copies that each stage could make. Backward, from what the sum takes: those that it needs.
    levels: list[dict[int, Ways]] = [{0: ()}]
    size = axis.size
    for pad in pads[:-1]:
        grown = size + 2 * pad - copying + 1
        levels.append(_list_moves(axis.size, levels[-1], _Window(size, pad, copying), grown))
        size = grown
    window = _Window(-(-size // axis.stride), pads[-1], last)
    chosen = _choose_fewest([_list_taps(axis, e, levels[-1], window) for e in axis.offsets])
    if chosen is None:
        return None
    stages, places = _trace_stages(chosen, levels, pads)
    return CopyPlan(stages, copying, last, pads[-1], places)


def _list_moves(size: int, before: Mapping[int, Ways], window: _Window, count: int) -> dict[int, Ways]:
    """List the moves that a stage can make, each with its ways.

    size: of the input.  before: moves of the stage before.  window: the kernel of the copies, over these.
    count: elements of each new copy.
    """
    moves: dict[int, list[tuple[int, int]]] = {}
    for move, place in product(before, range(window.length)):
        # A copy with move m holds the input's element u + m at u, and zero where there is none. Padding holds
        # zeros as well, so it may only stand where the input has no element.
        if all(not 0 <= u + move < size for u in window.outside(place, count)):
            moves.setdefault(move + place - window.pad, []).append((move, place))
    return {move: tuple(ways) for move, ways in moves.items()}


def _list_taps(axis: WindowAxis, offset: int, moves: Mapping[int, Ways], window: _Window) -> Ways:
    """List the copies and the places in the last kernel that give a tap, its padding included."""
    stride = axis.stride
    taps = []
    for move, place in product(moves, range(window.length)):
        if stride * (place - window.pad) + move != offset:
            continue
        # As in `_list_moves`, after subsampling.
        if all(not 0 <= stride * u + move < axis.size for u in window.outside(place, axis.count)):
            taps.append((move, place))
    return taps


def _trace_stages(
    chosen: Ways, levels: Sequence[Mapping[int, Ways]], pads: Sequence[int]
) -> tuple[tuple[CopyStage, ...], Ways]:
    """Trace, stage by stage from the last, which copies are needed.

    Returned with the places of the sum's taps, by the index of their copy.
    """
    needed = tuple(dict.fromkeys(move for move, _ in chosen))
    places: Ways = tuple((needed.index(move), place) for move, place in chosen)
    stages: list[CopyStage] = []
    for level, pad in zip(reversed(levels[1:]), reversed(pads[:-1]), strict=True):
        ways = _choose_fewest([level[move] for move in needed])
        assert ways is not None  # `_list_moves` lists no move without a way
        sources = tuple(dict.fromkeys(move for move, _ in ways))
        stages.insert(0, CopyStage(pad, tuple((sources.index(move), place) for move, place in ways)))
        needed = sources
    return tuple(stages), places


def _choose_fewest(options: Sequence[Ways]) -> Ways | None:
    """Choose for each element one of its ways, so that few copies are needed; None if an element has none."""
    if not all(options):
        return None
    # Each copy costs as many channels as the data has, so fewer copies are always better. Near moves first:
    # they lose fewer elements at the ends.
    moves = sorted({way[0] for way in chain.from_iterable(options)}, key=abs)
    for count in range(1, MAX_COMBINED + 1):
        for subset in combinations(moves, count):
            chosen = [next((way for way in ways if way[0] in subset), None) for ways in options]
            if None not in chosen:
                return [way for way in chosen if way is not None]
    return [min(ways, key=lambda way: moves.index(way[0])) for ways in options]


def plan_fold(axes: Sequence[WindowAxis], length: int) -> tuple[FoldPlan, ...]:
    """Plan copies that the application makes, so that one kernel of that length, or of 1, does the rest.

    The plan with the least data is chosen.
    """
    # With and without padding, and the plain case: one copy for each tap and a kernel of one element.
    kernels = {(length, length // 2), (length, 0), (1, 0)}
    plans = [tuple(_fold_axis(axis, *kernel) for axis in axes) for kernel in kernels]

    def cost(plan: tuple[FoldPlan, ...]) -> tuple[int, int]:
        return prod(len(f.moves) * f.size for f in plan), prod(len(f.moves) for f in plan)

    return min(plans, key=cost)


def _fold_axis(axis: WindowAxis, length: int, pad: int) -> FoldPlan:
    """Choose copies for a kernel of a length: repeatedly the one that serves most taps that are left."""
    left = set(axis.offsets)
    moves: list[int] = []
    places: dict[int, tuple[int, int]] = {}
    pairs = product(axis.offsets, range(length))
    candidates = sorted({e - axis.stride * (p - pad) for e, p in pairs}, key=abs)
    # Each offset is a candidate itself with a place of its own, so every round serves at least one tap.
    while left:
        served = {m: [(e, p) for e, p in _list_served(axis, m, length, pad) if e in left] for m in candidates}
        move = max(candidates, key=lambda m: len(served[m]))
        places.update({e: (len(moves), p) for e, p in served[move]})
        left.difference_update(e for e, _ in served[move])
        moves.append(move)
    size = axis.count + length - 1 - 2 * pad
    return FoldPlan(tuple(moves), size, pad, length, tuple(places[e] for e in axis.offsets))


def _list_served(axis: WindowAxis, move: int, length: int, pad: int) -> Iterator[tuple[int, int]]:
    """List the offsets that a copy serves, each with its place in the kernel.

    Places where padding would stand for an element of the input are left out.
    """
    window = _Window(axis.count + length - 1 - 2 * pad, pad, length)
    for place in range(length):
        if all(not 0 <= axis.stride * u + move < axis.size for u in window.outside(place, axis.count)):
            yield axis.stride * (place - pad) + move, place
