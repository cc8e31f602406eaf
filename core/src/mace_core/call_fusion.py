"""Lets a kernel call compute what the only reader of its result would do with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from itertools import chain

from mace_core.program import Call, Program

Fuse = Callable[[Call, Call, str], Call | None]
"""(a call, one that reads its result, the tensor between) -> a call that computes both; None if none does.

It reads what the two read but the tensor, and writes what the second writes, with the same bits.
"""


def fuse_calls(program: Program, fuse: Fuse) -> Program:
    """Return the program with two calls made one, and chains of them, wherever `fuse` can.

    The tensor between two calls disappears, so nothing else may read it. The pair runs where its second call
    stood, so the first must be the last that computes an operand of the second: what it reads would stay in
    memory longer than its result had to.
    """
    fusion = _Fusion(program, fuse)
    for position in range(len(program.calls)):
        fusion.visit(position)
    calls = tuple(chain.from_iterable(fusion.slots))
    tensors = {name: t for name, t in program.tensors.items() if name not in fusion.removed}
    return replace(program, calls=calls, tensors=tensors)


MAX_TRIALS = 40
"""Programs that are tried to find the fusions that a condition rules out: each is planned as a whole."""


def fuse_where(program: Program, fuse: Fuse, accepts: Callable[[Program], bool]) -> Program:
    """Return the program with as many pairs of calls made one as a condition on the result allows.

    accepts: a condition that the program without fusions meets.
    """
    fused = fuse_calls(program, fuse)
    if accepts(fused):
        return fused
    # By halves: of many fusions few break the condition, as a rule, and a trial of each takes too long.
    groups = _halve([name for name in program.tensors if name not in fused.tensors])
    allowed: frozenset[str] = frozenset()
    best = program
    for _ in range(MAX_TRIALS):
        if not groups:
            break
        group = groups.pop()
        trial = fuse_calls(program, _restrict(fuse, allowed.union(group)))
        if accepts(trial):
            best, allowed = trial, allowed.union(group)
        elif len(group) > 1:
            groups += _halve(group)
    return best


def _restrict(fuse: Fuse, allowed: Container[str]) -> Fuse:
    """Return a function that makes pairs of calls one only where these tensors lie between them."""

    def fuse_allowed(first: Call, second: Call, tensor: str) -> Call | None:
        return fuse(first, second, tensor) if tensor in allowed else None

    return fuse_allowed


def _halve(names: Sequence[str]) -> list[Sequence[str]]:
    """Return both halves, the first one last, where it is taken first."""
    middle = (len(names) + 1) // 2
    return [half for half in (names[middle:], names[:middle]) if half]


class _Fusion:
    """The calls in their order, while they become fewer.

    slots: for each call of the program those that took its place; several where each computes the same at
    other levels.
    removed: tensors that lay between two calls.
    """

    def __init__(self, program: Program, fuse: Fuse) -> None:
        self.slots = [[call] for call in program.calls]
        self.removed: set[str] = set()
        self._fuse = fuse
        self._writers: dict[str, set[int]] = defaultdict(set)
        self._readers: dict[str, set[int]] = defaultdict(set)
        for position, call in enumerate(program.calls):
            for name in call.writes:
                self._writers[name].add(position)
            for name in filter(None, call.reads):
                self._readers[name].add(position)
        # Bytes under several names, and memory of the application, are seen by more than the calls tell.
        self._shared = {*program.aliases, *program.aliases.values(), *program.inputs, *program.outputs}

    def visit(self, position: int) -> None:
        """Make a call one with the call before it that computes an operand, if that can be."""
        (second,) = self.slots[position]
        for tensor in dict.fromkeys(filter(None, second.reads)):
            writers = self._writers[tensor]
            is_private = self._readers[tensor] == {position} and tensor not in self._shared
            if not writers or not is_private or max(writers) < self._find_latest(second):
                continue
            calls = list(chain.from_iterable(self.slots[writer] for writer in sorted(writers)))
            if not _write_all(calls):
                continue
            pairs = [self._pair(call, second, tensor) for call in calls]
            fused = [call for call in pairs if call is not None]
            if len(fused) == len(pairs):
                self._replace(position, tensor, fused)
                return

    def _find_latest(self, call: Call) -> int:
        """Return the position of the last call that computes an operand."""
        return max(chain.from_iterable(self._writers.get(name, ()) for name in call.reads))

    def _pair(self, first: Call, second: Call, tensor: str) -> Call | None:
        if len(first.writes) != 1 or second.reads.count(tensor) != 1 or not _agree(first, second):
            return None
        fused = self._fuse(first, second, tensor)
        if fused is None:
            return None
        sources = tuple(dict.fromkeys((*first.sources, *second.sources)))
        return replace(fused, node=second.node, sources=sources, levels=first.levels or second.levels)

    def _replace(self, position: int, tensor: str, fused: list[Call]) -> None:
        for writer in self._writers[tensor]:
            for call in self.slots[writer]:
                for name in filter(None, call.reads):
                    self._readers[name] = (self._readers[name] - {writer}) | {position}
            self.slots[writer] = []
        self.slots[position] = fused
        self.removed.add(tensor)


def _write_all(calls: Sequence[Call]) -> bool:
    """Tell whether each of the calls that write a tensor writes all of it.

    Several of one level, as those of a Concat, write parts: behind each of them the second call would see
    but one.
    """
    levels = list(chain.from_iterable(call.levels for call in calls))
    return len(calls) == 1 or (all(call.levels for call in calls) and len(set(levels)) == len(levels))


def _agree(first: Call, second: Call) -> bool:
    """Tell whether the second call is made wherever the first is."""
    return not second.levels or second.levels == first.levels
