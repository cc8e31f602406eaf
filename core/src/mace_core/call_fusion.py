"""Lets a kernel call compute what the only reader of its result would do with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
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
            calls = chain.from_iterable(self.slots[writer] for writer in sorted(writers))
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


def _agree(first: Call, second: Call) -> bool:
    """Tell whether the second call is made wherever the first is."""
    return not second.levels or second.levels == first.levels
