"""Plans memory: gives every tensor of a program a fixed offset in an arena, when the library is built.

The problem is dynamic storage allocation, which is NP-hard. Plans are made by first fit in several orders and
by sweeps through time, and the smallest one is taken; the search ends at the lower bound, the largest live
set.
Everything is deterministic, so that equal models give equal libraries.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from mace_core.part import HOST
from mace_core.program import Program

MAX_ATTEMPTS, MAX_EFFORT = 400, 1 << 20
"""Shuffled orders that are tried if the fixed ones miss the lower bound; `_effort` counts the cost of one."""

SMALL_PROGRAM = 1 << 24
"""A program of n buffers is shuffled at least SMALL_PROGRAM / n^2 times, whatever the effort."""

MAX_PAIRS = 1_500_000
"""Maximum number of pairs of buffers that live at the same time for plans that compare them pair by pair.

Above it, only the sweeps over time are tried, whose cost does not grow with the pairs. An unrolled recurrent
layer of 20,000 nodes has twenty times as many.
"""


@dataclass(frozen=True)
class Span:
    """A buffer: its bytes and the first and last call that touch it."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Span) -> bool:
        """Tell whether both live during some call."""
        return self.first <= other.last and other.first <= self.last


Neighbors = Mapping[str, Sequence[str]]
"""Buffer -> those that live at the same time."""


@dataclass(frozen=True)
class Arena:
    """offsets: tensor -> byte; only tensors that live in the arena.  bound: the largest live set, bytes."""

    offsets: Mapping[str, int]
    bytes: int
    bound: int


@dataclass(frozen=True)
class Touch:
    """The effect of one step on memory: the tensors that it reads and writes.

    inplace: whether the output may reuse the buffer of a dead input of the same size.
    levels: names of the only levels at which the step is made, of those of `target`; () for a step of every
    run.
    """

    reads: Sequence[str]
    writes: Sequence[str]
    inplace: bool = False
    levels: tuple[str, ...] = ()
    target: str = ""

    def is_made_at(self, target: str, level: str) -> bool:
        """Tell whether the step may be part of a run in which a target's kernels are those of a level."""
        return not self.levels or self.target != target or level in self.levels


def touches_of(program: Program, target: str = "") -> list[Touch]:
    """Return the effects of a program's calls; target: the one whose levels decide which calls are made."""
    return [Touch(tuple(c.reads), tuple(c.writes), c.inplace, c.levels, target) for c in program.calls]


def arena(program: Program, touches: Sequence[Touch] | None = None) -> Arena:
    """Give every intermediate tensor of a program its offset.

    touches: the effects of all steps of a run, if there are others than the program's calls, such as
    transfers.
    """
    owner, spans = list_spans(program, touches_of(program) if touches is None else touches)
    placed = arrange(spans)
    offsets = {t: placed.offsets[owner[program.root(t)]] for t in program.tensors if program.root(t) in owner}
    return Arena(offsets, placed.bytes, placed.bound)


def fits(program: Program, limit: int) -> bool:
    """Tell whether `arena` finds a plan of at most `limit` bytes; stops at the first one."""
    _, spans = list_spans(program, touches_of(program))
    # The bound is found in no time, a plan that misses it only by all attempts.
    return lower_bound(spans) <= limit and arrange(spans, limit).bytes <= limit


def arrange(spans: Sequence[Span], enough: int = 0) -> Arena:
    """Give every buffer its offset, which is a multiple of all sizes' common alignment.

    enough: bytes of a plan for which no smaller one is looked for.
    """
    bound = lower_bound(spans)
    placed = _best(spans, max(bound, enough), bound)
    return Arena(placed, max((placed[s.name] + s.size for s in spans), default=0), bound)


def lower_bound(spans: Iterable[Span]) -> int:
    """Return the largest sum of sizes of buffers that live at one time; no plan can be smaller."""
    steps: dict[int, int] = {}
    for span in spans:
        steps[span.first] = steps.get(span.first, 0) + span.size
        steps[span.last + 1] = steps.get(span.last + 1, 0) - span.size
    live = peak = 0
    for step in sorted(steps):
        live += steps[step]
        peak = max(peak, live)
    return peak


def list_spans(program: Program, steps: Sequence[Touch]) -> tuple[dict[str, str], list[Span]]:
    """Return the buffer of each tensor that owns bytes, and the life of each buffer."""
    outside = {*program.inputs, *program.weights, *(program.root(o) for o in program.outputs)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(steps):
        for root in {program.root(t) for t in (*call.reads, *call.writes) if t} - outside:
            first.setdefault(root, step)
            last[root] = step
    size = {root: HOST.round_up(program.tensors[root].bytes) for root in first}
    owner = _owners(program, steps, first)
    last_use: dict[str, int] = {}
    for root, buffer in owner.items():
        last_use[buffer] = max(last_use.get(buffer, 0), last[root])
    return owner, [Span(b, size[b], first[b], last_use[b]) for b in first if b in last_use]


def _owners(program: Program, steps: Sequence[Touch], inside: Iterable[str]) -> dict[str, str]:
    """Return the buffer of each tensor that owns bytes in the arena.  inside: those tensors.

    Each level makes only its calls, and one plan serves all levels: a result may take over an input only if
    it may at every level that touches it.
    """
    levels: dict[tuple[str, str], None] = {}
    for step in steps:
        levels |= dict.fromkeys((step.target, level) for level in step.levels)
    owner = {root: root for root in inside}
    takeovers: list[dict[str, str]] = []
    for level in levels or {("", ""): None}:
        steps_of_level = [step for step in steps if step.is_made_at(*level)]
        takeovers.append(_takeovers(program, steps_of_level, owner))
    candidates = dict(chain.from_iterable(at_level.items() for at_level in takeovers))
    for result, root in candidates.items():
        if root != result and all(at_level.get(result, root) == root for at_level in takeovers):
            owner[result] = owner[root]
    return owner


def _takeovers(program: Program, steps: Sequence[Touch], inside: Container[str]) -> dict[str, str]:
    """Return for each tensor that these steps write, in order, the input that it takes over, or itself."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for root in {program.root(t) for t in (*step.reads, *step.writes) if t}:
            first.setdefault(root, number)
            last[root] = number
    taken: dict[str, str] = {}
    for number, step in enumerate(steps):
        for root in map(program.root, step.writes):
            taken.setdefault(root, root)
        result = program.root(step.writes[0]) if step.inplace else ""
        if result not in inside or first[result] != number:
            continue
        for root in map(program.root, step.reads):
            # Kernels read a smaller input several times (it is broadcast), also after the result would have
            # overwritten a part of it.
            is_whole = root in inside and program.tensors[root].bytes == program.tensors[result].bytes
            if is_whole and root != result and last[root] == number:
                taken[result] = root
                break
    return taken


def _best(spans: Sequence[Span], enough: int, bound: int) -> dict[str, int]:
    """Return the smallest plan that the search yields, the same one every time.

    enough: bytes of a plan that ends the search.  bound: the largest live set.
    """
    pairs = _overlapping_pairs(spans)
    plans = _sweeps(spans, bound)
    if pairs <= MAX_PAIRS:
        neighbors = _list_neighbors(spans)
        plan, order = _fit_fixed_orders(spans, neighbors)
        shuffles = _shuffles(order, neighbors, _height(spans, plan), _attempts(len(spans), pairs))
        plans = chain([plan], plans, shuffles)
    best: dict[str, int] = {}
    height = -1
    # Plans are generators: later, more expensive ones are made only if the earlier ones are too large.
    for plan in plans:
        reached = _height(spans, plan)
        if height < 0 or reached < height:
            best, height = plan, reached
        if height <= enough:  # the others need not be made; none is smaller than the bound
            break
    return best


def _fit_fixed_orders(spans: Sequence[Span], neighbors: Neighbors) -> tuple[dict[str, int], Sequence[Span]]:
    """Return the best plan of three orders (by size, start and length of life) and its order."""
    # Large buffers first leave the small ones to fill gaps; the order of time suits chains; long lives first
    # keep buffers that block everything out of the middle. Names make ties deterministic.
    orders = [
        sorted(spans, key=lambda s: (-s.size, s.first, s.name)),
        sorted(spans, key=lambda s: (s.first, -s.size, s.name)),
        sorted(spans, key=lambda s: (s.first - s.last, -s.size, s.name)),
    ]
    plans = [_fit(order, neighbors) for order in orders]
    heights = [_height(spans, plan) for plan in plans]
    best = heights.index(min(heights))
    return plans[best], orders[best]


def _shuffles(
    order: Sequence[Span], neighbors: Neighbors, height: int, attempts: int
) -> Iterator[dict[str, int]]:
    """Yield plans of orders with randomly weighted sizes, continuing from each order that is better.

    height: that of the plan of `order`.
    """
    shuffle = random.Random(0)  # noqa: S311  # repeatable, not secret
    for _ in range(attempts):
        trial = sorted(order, key=lambda s: -s.size * shuffle.uniform(0.5, 1.5))
        plan = _fit(trial, neighbors)
        yield plan
        reached = _height(trial, plan)
        if reached < height:
            height, order = reached, trial


def _sweeps(spans: Sequence[Span], bound: int) -> Iterator[dict[str, int]]:
    """Yield plans of sweeps through time: forward, backward, and forward from both ends of the arena."""
    # A chain of layers needs both ends: with each result at the other end than its operand, no gap is cut in
    # two.
    end = max((s.last for s in spans), default=0)
    mirrored = [Span(s.name, s.size, end - s.last, end - s.first) for s in spans]
    yield _sweep(spans)
    yield _sweep(mirrored)
    yield _sweep(spans, bound)


def _attempts(count: int, pairs: int) -> int:
    """Return the number of shuffled orders to try."""
    floor = SMALL_PROGRAM // max(1, count) ** 2
    return min(MAX_ATTEMPTS, max(floor, MAX_EFFORT // _effort(count, pairs)))


def _effort(count: int, pairs: int) -> int:
    """Estimate the cost of one `_fit` in compared pairs; finding a buffer's pairs costs 40 (measured)."""
    return max(1, 40 * count + pairs)


def _overlapping_pairs(spans: Sequence[Span]) -> int:
    """Count the pairs of buffers that live at one time."""
    starts = sorted(s.first for s in spans)
    last_steps = sorted(s.last for s in spans)
    # A buffer lives beside every one that started before it and has not ended: count those at each start.
    return sum(i - bisect_left(last_steps, start) for i, start in enumerate(starts))


def _height(spans: Iterable[Span], placed: Mapping[str, int]) -> int:
    return max((placed[s.name] + s.size for s in spans), default=0)


def _list_neighbors(spans: Iterable[Span]) -> Neighbors:
    """Return the buffers that live beside each one.

    Hundreds of orders are fitted, so that they are not found for each of them.
    """
    neighbors: dict[str, list[str]] = {span.name: [] for span in spans}
    living: list[Span] = []
    for span in sorted(spans, key=lambda s: s.first):
        living = [other for other in living if other.last >= span.first]
        for other in living:
            neighbors[span.name].append(other.name)
            neighbors[other.name].append(span.name)
        living.append(span)
    return neighbors


def _fit(order: Sequence[Span], neighbors: Neighbors) -> dict[str, int]:
    """Put each buffer, in this order, into the lowest gap that holds it among those that live beside it."""
    placed: dict[str, int] = {}
    tops: dict[str, int] = {}
    for span in order:
        offset = 0
        for start, end in sorted([(placed[n], tops[n]) for n in neighbors[span.name] if n in placed]):
            if offset + span.size <= start:
                break
            offset = max(offset, end)
        placed[span.name], tops[span.name] = offset, offset + span.size
    return placed


def _sweep(spans: Sequence[Span], ceiling: int = 0) -> dict[str, int]:
    """Put each buffer, in the order of time, into the lowest gap that holds it; free it when it dies.

    ceiling: buffers that start at an odd step go as high as they can below it, where they can.
    """
    placed: dict[str, int] = {}
    living: list[tuple[int, int, int]] = []  # (last step, offset, end), the first to die in front
    # Large enough for every plan: each buffer raises the top by its size at most, and what is placed below
    # the ceiling may leave gaps that no other buffer fits into.
    gaps: list[tuple[int, int]] = [(0, ceiling + sum(s.size for s in spans))]
    for span in sorted(spans, key=lambda s: (s.first, -s.size, s.name)):
        while living and living[0][0] < span.first:
            _, start, end = heapq.heappop(living)
            _release(gaps, start, end)
        offset = _take(gaps, span.size, ceiling if span.first % 2 else 0)
        placed[span.name] = offset
        heapq.heappush(living, (span.last, offset, offset + span.size))
    return placed


def _take(gaps: list[tuple[int, int]], size: int, ceiling: int) -> int:
    """Cut `size` bytes out of a sorted list of gaps, the highest below the ceiling, or else the lowest.

    Returns their offset.
    """
    high = next(
        (i for i in reversed(range(len(gaps))) if min(gaps[i][1], ceiling) - gaps[i][0] >= size), None
    )
    number = next(i for i, (start, end) in enumerate(gaps) if end - start >= size) if high is None else high
    start, end = gaps[number]
    offset = start if high is None else min(end, ceiling) - size
    left = [(start, offset), (offset + size, end)]
    gaps[number : number + 1] = [gap for gap in left if gap[0] < gap[1]]
    return offset


def _release(gaps: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a gap to a sorted list of gaps, joined with those that it touches."""
    number = bisect_right(gaps, (start, end))
    if number < len(gaps) and gaps[number][0] == end:
        end = gaps.pop(number)[1]
    if number and gaps[number - 1][1] == start:
        number -= 1
        start = gaps.pop(number)[0]
    gaps.insert(number, (start, end))
