"""Where every tensor of a program lies: one arena of fixed offsets, planned when the library is built."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mace_core.program import Program

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""

ATTEMPTS, EFFORT = 400, 1 << 24
"""Shuffled orders tried where the plain ones miss the lower bound: fewer where there are many buffers, for each is held against each."""


@dataclass(frozen=True)
class Span:
    """A buffer: its bytes and the first and last call that touch it."""

    name: str
    size: int
    first: int
    last: int

    def overlaps(self, other: Span) -> bool:
        """Whether both live during some call."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """offsets: tensor -> byte; only tensors that live in the arena.  bound: the largest live set, bytes."""

    offsets: Mapping[str, int]
    bytes: int
    bound: int


def arena(program: Program) -> Arena:
    """Give every intermediate tensor of a program its offset."""
    owner, spans = _spans(program)
    bound = lower_bound(spans)
    placed = _best(spans, bound)
    size = max((placed[s.name] + s.size for s in spans), default=0)
    offsets = {t: placed[owner[program.root(t)]] for t in program.tensors if program.root(t) in owner}
    return Arena(offsets, size, bound)


def lower_bound(spans: Iterable[Span]) -> int:
    """The largest sum of sizes that live at one time; no plan can be smaller."""
    steps: dict[int, int] = {}
    for span in spans:
        steps[span.first] = steps.get(span.first, 0) + span.size
        steps[span.last + 1] = steps.get(span.last + 1, 0) - span.size
    live = peak = 0
    for step in sorted(steps):
        live += steps[step]
        peak = max(peak, live)
    return peak


def _spans(program: Program) -> tuple[dict[str, str], list[Span]]:
    """The arena's buffers, and the buffer that each owning tensor lies in: a result may take over an input of its size that dies."""
    outside = {*program.inputs, *program.weights, *(program.root(o) for o in program.outputs)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for root in {program.root(t) for t in (*call.reads, *call.writes) if t} - outside:
            first.setdefault(root, step)
            last[root] = step
    size = {root: _aligned(program.tensors[root].bytes) for root in first}
    owner = {root: root for root in first}
    for step, call in enumerate(program.calls):
        result = program.root(call.writes[0]) if call.inplace else ""
        for root in map(program.root, call.reads if result in first and first[result] == step else ()):
            whole = root in first and program.tensors[root].bytes == program.tensors[result].bytes  # a broadcast one is read again
            if whole and root != result and last[root] == step:
                owner[result] = owner[root]
                break
    ends = {buffer: max(last[r] for r in owner if owner[r] == buffer) for buffer in set(owner.values())}
    return owner, [Span(b, size[b], first[b], ends[b]) for b in first if b in ends]


def _best(spans: Sequence[Span], bound: int) -> dict[str, int]:
    """The smallest plan found: three fixed orders, then shuffles of the best, the same ones every time."""
    orders = [
        sorted(spans, key=lambda s: (-s.size, s.first, s.name)),
        sorted(spans, key=lambda s: (s.first, -s.size, s.name)),
        sorted(spans, key=lambda s: (s.first - s.last, -s.size, s.name)),
    ]
    plans = [(_height(order, plan := _fit(order)), i, plan, order) for i, order in enumerate(orders)]
    height, _, plan, order = min(plans, key=lambda p: p[:2])
    shuffle = random.Random(0)  # noqa: S311  # repeatable, not secret
    attempts = min(ATTEMPTS, EFFORT // max(1, len(spans)) ** 2)
    for _ in range(attempts if height > bound else 0):
        trial = sorted(order, key=lambda s: -s.size * shuffle.uniform(0.5, 1.5))
        placed = _fit(trial)
        if (reached := _height(trial, placed)) < height:
            height, plan, order = reached, placed, trial
        if height == bound:
            break
    return plan


def _height(spans: Iterable[Span], placed: Mapping[str, int]) -> int:
    return max((placed[s.name] + s.size for s in spans), default=0)


def _fit(order: Sequence[Span]) -> dict[str, int]:
    """Put each buffer, in this order, into the lowest gap that holds it among those that live beside it."""
    placed: dict[str, int] = {}
    done: list[Span] = []
    for span in order:
        at = 0
        for other in sorted((o for o in done if o.overlaps(span)), key=lambda o: placed[o.name]):
            if at + span.size <= placed[other.name]:
                break
            at = max(at, placed[other.name] + other.size)
        placed[span.name] = at
        done.append(span)
    return placed


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
