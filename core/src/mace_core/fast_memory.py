"""Chooses the tensors that lie in fast memory, and gives them and all others their offsets.

Fast memory is what a processor reaches in fewer cycles than the rest, such as the tightly coupled memories of
DSPs and microcontrollers. It is small, so that only tensors whose readers gain from it are candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from mace_core.memory import Arena, Touch, arrange, fit_within, list_spans
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
    chosen = fit_within(candidates, memory.space.capacity)
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
