"""Loops as TensorFlow 1 wrote them, seen as one operation each.

A loop is a frame: `Enter` brings values in, `Merge` chooses between what came in and what `NextIteration`
brings back, `Switch` leads to the body or to `Exit`, as `LoopCond` says
(tensorflow/core/graph/control_flow.h, and "Implementation of Control Flow in TensorFlow", 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mace_core.errors import MaceError
from mace_frontend_tensorflow.flat import Flat, Operation, Ref

LOOP = "loop of TensorFlow 1"
"""The operator of the operation that a loop becomes: its inputs are what comes in, its outputs what goes out."""

ENTER, EXIT, NEXT = ("Enter", "RefEnter"), ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
MERGE, SWITCH = ("Merge", "RefMerge"), ("Switch", "RefSwitch")


@dataclass(frozen=True)
class Variable:
    """A value that changes from turn to turn.

    enter: where it comes in; next: what it is in the turn after; exit: where it goes out.
    """

    enter: int
    merge: str
    switch: str | None
    next: Ref
    exit: str | None


@dataclass(frozen=True)
class Loop:
    """A frame.

    enters: the operations that bring its operands in, in their order; condition: whether another turn
    follows.
    """

    enters: tuple[str, ...]
    variables: tuple[Variable, ...]
    condition: Ref


def with_loops(flat: Flat, place: str) -> tuple[Flat, Mapping[str, Loop]]:
    """The graph with every loop as one operation, and the loops by its name.

    MaceError for one that lacks a part.
    """
    frames: dict[bytes, list[Operation]] = {}
    for operation in flat.operations.values():
        if operation.op in ENTER and operation.inputs:
            name = operation.attrs["frame_name"].s if "frame_name" in operation.attrs else b""
            frames.setdefault(name, []).append(operation)
    if not frames:
        return flat, {}
    users = _users(flat)
    loops, made, aliases = {}, dict(flat.operations), dict(flat.aliases)
    for frame, enters in frames.items():
        name = _free(frame.decode(errors="replace") or "loop", made)
        try:
            loops[name] = loop = _loop(flat, enters, users)
        except (ValueError, LookupError) as error:
            raise MaceError(
                place, f"loop {name!r} is malformed: {error}", "export the model again"
            ) from error
        made[name] = Operation(name, LOOP, tuple(e.inputs[0] for e in enters), (), {})
        aliases.update(((v.exit, 0), (name, i)) for i, v in enumerate(loop.variables) if v.exit)
    return replace(flat, operations=made, aliases=aliases), loops


def _free(name: str, taken: Mapping[str, Operation]) -> str:
    while name in taken:
        name += "_"
    return name


def _users(flat: Flat) -> Mapping[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for operation in flat.operations.values():
        for ref in dict.fromkeys(flat.inputs(operation)):
            found.setdefault(ref[0], []).append(operation)
    return found


def _loop(flat: Flat, enters: list[Operation], users: Mapping[str, list[Operation]]) -> Loop:
    variables: list[Variable] = []
    condition: Ref | None = None
    for index, enter in enumerate(enters):
        merge = next((u for u in users.get(enter.name, ()) if u.op in MERGE), None)
        if merge is None:  # the same in every turn
            continue
        back = next((flat.operations.get(ref[0]) for ref in flat.inputs(merge) if ref[0] != enter.name), None)
        if back is None or back.op not in NEXT or not back.inputs:
            raise ValueError(f"{merge.name!r} gets nothing back from the body")
        switch = next(
            (u for u in users.get(merge.name, ()) if u.op in SWITCH and flat.inputs(u)[0] == (merge.name, 0)),
            None,
        )
        exit_ = next((u for u in users.get(switch.name, ()) if u.op in EXIT), None) if switch else None
        found = Variable(
            index, merge.name, switch.name if switch else None, back.inputs[0], exit_.name if exit_ else None
        )
        variables.append(found)
        if switch:
            condition = flat.inputs(switch)[1]
    decides = flat.operations.get(condition[0]) if condition else None
    if decides is None or decides.op != "LoopCond" or not decides.inputs:
        raise ValueError("nothing decides when it ends")
    return Loop(tuple(e.name for e in enters), tuple(variables), decides.inputs[0])
