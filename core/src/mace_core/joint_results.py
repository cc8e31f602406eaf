"""Lets kernel calls write their results into the tensor that a later call would join them to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from mace_core.program import Call, Program

Place = Callable[[Call, Call, Program], Call | None]
"""(a call, the call that joins its result with others, their program) -> a call that writes its result there.

None if no kernel does.
"""


def join_results(program: Program, place: Place) -> Program:
    """Return the program without calls that only join results, where all of these can be written in place.

    Each result must have no other reader and be no output; the joint tensor then exists from the first of
    them on, in place of all.
    """
    writers, readers = _find_positions(program)
    shared = {*program.aliases, *program.aliases.values(), *program.inputs, *program.outputs}
    calls: list[Call | None] = list(program.calls)
    removed: set[str] = set()
    for position, joint in enumerate(program.calls):
        parts = [name for name in joint.reads if name and name not in program.weights]
        is_private = all(readers[p] == [position] and p not in shared for p in parts)
        if not is_private or not _fill(parts, joint, program) or joint.levels:
            continue
        positions = list(chain.from_iterable(writers[part] for part in parts))
        placed = [_place(calls[writer], joint, place, program) for writer in positions]
        if all(writers[part] for part in parts) and None not in placed:
            for writer, call in zip(positions, placed, strict=True):
                calls[writer] = call
            calls[position] = None
            removed.update(parts)
    tensors = {name: tensor for name, tensor in program.tensors.items() if name not in removed}
    return replace(program, calls=tuple(call for call in calls if call), tensors=tensors)


def _fill(parts: Sequence[str], joint: Call, program: Program) -> bool:
    """Tell whether these tensors, each once, are all that the joint one consists of.

    A constant that is joined to them would be missing, since no call writes it.
    """
    if not parts or len(joint.writes) != 1:
        return False
    elements = sum(program.tensors[part].elements for part in set(parts))
    return elements == program.tensors[joint.writes[0]].elements


def _place(call: Call | None, joint: Call, place: Place, program: Program) -> Call | None:
    placed = place(call, joint, program) if call and len(call.writes) == 1 else None
    if placed is None:
        return None
    # Reports count the joint node as computed by each of them.
    sources = tuple(dict.fromkeys((*placed.sources, *joint.sources)))
    return replace(placed, writes=joint.writes, sources=sources)


def _find_positions(program: Program) -> tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[int]]]:
    """Return the positions of the calls that write each tensor, and of those that read it."""
    writers: dict[str, list[int]] = defaultdict(list)
    readers: dict[str, list[int]] = defaultdict(list)
    for position, call in enumerate(program.calls):
        for name in call.writes:
            writers[name].append(position)
        for name in filter(None, call.reads):
            readers[name].append(position)
    return writers, readers
