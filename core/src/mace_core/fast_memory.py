"""Chooses the tensors that lie in fast memory, and gives them and all others their offsets.

Fast memory is what a processor reaches in fewer cycles than the rest, such as the tightly coupled memories of
DSPs and microcontrollers. It is small, so that only tensors whose readers gain from it are candidates.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from mace_core.memory import Arena, Span, Touch, arrange, list_spans
from mace_core.part import FastMemory
from mace_core.program import Call, Program

NO_ARENA = Arena({}, 0, 0)
"""The arena of a space that nothing lies in."""


def divide_arena(
    program: Program, touches: Sequence[Touch], memory: FastMemory, fixed: Iterable[str]
) -> tuple[Arena, Arena]:
    """Return the arena of fast memory and that of all other intermediate tensors.

    touches: the effects of all steps of a run.  fixed: tensors that cannot lie in fast memory, because others
    than calls of the part that has it use them.
    """
    owner, spans = list_spans(program, touches)
    excluded = {owner.get(program.root(name), "") for name in fixed}
    excluded |= {owner.get(root, "") for root in _list_losers(program, memory.gains)}
    uses = _count_uses(program, touches, owner)
    candidates = [
        replace(span, size=memory.space.round_up(span.size)) for span in spans if span.name not in excluded
    ]
    # A byte that is touched often for its time in memory gains most; of equal ones the large ones, because
    # they are the first to leave the caches.
    candidates.sort(key=lambda s: (-uses[s.name] / (s.last - s.first + 1), -s.size, s.name))
    chosen = _fit_within(candidates, memory.space.capacity)
    fast_spans = [span for span in candidates if span.name in chosen]
    top = max((chosen[span.name] + span.size for span in fast_spans), default=0)
    rest = arrange([span for span in spans if span.name not in chosen])
    roots = {name: owner[program.root(name)] for name in program.tensors if program.root(name) in owner}
    fast = {name: chosen[buffer] for name, buffer in roots.items() if buffer in chosen}
    host = {name: rest.offsets[buffer] for name, buffer in roots.items() if buffer not in chosen}
    return Arena(fast, top, top), replace(rest, offsets=host)


def _list_losers(program: Program, gains: Callable[[Call], bool]) -> Iterable[str]:
    """Return the tensors that a call without a gain reads, and those that none reads."""
    read: set[str] = set()
    losers: set[str] = set()
    for call in program.calls:
        roots = {program.root(name) for name in call.reads if name}
        read |= roots
        if not gains(call):
            losers |= roots
    written = {program.root(name) for name in chain.from_iterable(call.writes for call in program.calls)}
    return losers | (written - read)


def _count_uses(program: Program, touches: Sequence[Touch], owner: dict[str, str]) -> Counter[str]:
    """Count the steps that touch each buffer."""
    uses: Counter[str] = Counter()
    for touch in touches:
        roots = (program.root(name) for name in (*touch.reads, *touch.writes) if name)
        uses.update({owner[root] for root in roots if root in owner})
    return uses


class _Timeline:
    """Placed buffers by the time that they live: finds those that live beside another in O(log n + found).

    A buffer lives beside another if it lives when that one starts (looked up in a segment tree over the
    steps, in which each buffer is filed under O(log n) nodes that together are its life), or if it starts
    while that one lives.
    """

    def __init__(self, steps: int) -> None:
        self._leaves = steps
        self._tree: list[list[Span]] = [[] for _ in range(2 * steps)]
        self._starts: list[tuple[int, int]] = []
        self._placed: list[Span] = []

    def add(self, span: Span) -> None:
        """File a buffer."""
        insort(self._starts, (span.first, len(self._placed)))
        self._placed.append(span)
        left, right = span.first + self._leaves, span.last + self._leaves + 1
        while left < right:
            if left & 1:
                self._tree[left].append(span)
                left += 1
            if right & 1:
                right -= 1
                self._tree[right].append(span)
            left >>= 1
            right >>= 1

    def overlapping(self, span: Span) -> list[Span]:
        """Return the filed buffers that live at the same time as `span`."""
        spans: list[Span] = []
        node = span.first + self._leaves
        while node:
            spans += self._tree[node]
            node >>= 1
        low = bisect_left(self._starts, (span.first + 1, 0))
        high = bisect_left(self._starts, (span.last + 1, 0))
        spans += [self._placed[number] for _, number in self._starts[low:high]]
        return spans


def _fit_within(order: Sequence[Span], capacity: int | None) -> dict[str, int]:
    """Return the offsets of those buffers that fit below `capacity`, each in the lowest gap that holds it.

    capacity: bytes; None for no limit.
    """
    placed: dict[str, int] = {}
    timeline = _Timeline(1 + max((s.last for s in order), default=0))
    for span in order:
        offset = 0
        for start, end in sorted(
            (placed[o.name], placed[o.name] + o.size) for o in timeline.overlapping(span)
        ):
            if offset + span.size <= start:
                break
            offset = max(offset, end)
        if capacity is None or offset + span.size <= capacity:
            placed[span.name] = offset
            timeline.add(span)
    return placed
