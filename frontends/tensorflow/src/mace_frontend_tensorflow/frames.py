"""Collapses each loop of TensorFlow 1 to one operation.

A loop is a frame: `Enter` brings values in, `Merge` chooses between what came in and what `NextIteration`
brings back, `Switch` leads to the body or to `Exit`, as `LoopCond` says
(tensorflow/core/graph/control_flow.h, and "Implementation of Control Flow in TensorFlow", 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mace_core.errors import MaceError
from mace_frontend_tensorflow.flat import Flat, GraphOperation, Ref

LOOP = "loop of TensorFlow 1"
"""The operator of the operation that a loop becomes: its inputs are what enters, its outputs what leaves.

No TensorFlow operator has a space in its name.
"""

ENTER, EXIT, NEXT = ("Enter", "RefEnter"), ("Exit", "RefExit"), ("NextIteration", "RefNextIteration")
MERGE, SWITCH = ("Merge", "RefMerge"), ("Switch", "RefSwitch")


@dataclass(frozen=True)
class LoopVariable:
    """A value that changes from iteration to iteration.

    enter: the number of its `Enter` among those of the loop.
    merge: the operation that reads it in each iteration.
    switch: the operation that leads it to the body or out; None if nothing reads it there.
    next: its value in the iteration after.
    exit: the operation that it leaves by; None if nothing reads it after the loop.
    """

    enter: int
    merge: str
    switch: str | None
    next: Ref
    exit: str | None


@dataclass(frozen=True)
class LoopFrame:
    """A loop.

    enters: the operations that bring its operands in, in their order.
    variables: what changes from iteration to iteration.
    condition: the boolean that says whether another iteration follows.
    """

    enters: tuple[str, ...]
    variables: tuple[LoopVariable, ...]
    condition: Ref


def collapse_loops(flat: Flat, place: str) -> tuple[Flat, Mapping[str, LoopFrame]]:
    """Return the graph with every loop as one operation, and the loops by the names of those.

    The operations inside stay in the graph: each iteration translates them in a scope of its own.
    MaceError for a loop that lacks a part.
    """
    frames: dict[bytes, list[GraphOperation]] = {}
    for operation in flat.operations.values():
        if operation.op in ENTER and operation.inputs:
            name = operation.attrs["frame_name"].s if "frame_name" in operation.attrs else b""
            frames.setdefault(name, []).append(operation)
    if not frames:
        return flat, {}
    users = _find_users(flat)
    loops, operations, aliases = {}, dict(flat.operations), dict(flat.aliases)
    for frame, enters in frames.items():
        name = _free_name(frame.decode(errors="replace") or "loop", operations)
        try:
            loops[name] = loop = _read_loop(flat, enters, users)
        except (ValueError, LookupError) as error:
            raise MaceError(
                place, f"loop {name!r} is malformed: {error}", "export the model again"
            ) from error
        operations[name] = GraphOperation(name, LOOP, tuple(e.inputs[0] for e in enters), (), {})
        aliases.update(((v.exit, 0), (name, i)) for i, v in enumerate(loop.variables) if v.exit)
    return replace(flat, operations=operations, aliases=aliases), loops


def _free_name(name: str, taken: Mapping[str, GraphOperation]) -> str:
    while name in taken:
        name += "_"
    return name


def _find_users(flat: Flat) -> Mapping[str, list[GraphOperation]]:
    """Return the operations that read an output of each operation, by its name."""
    users: dict[str, list[GraphOperation]] = {}
    for operation in flat.operations.values():
        for ref in dict.fromkeys(flat.inputs(operation)):
            users.setdefault(ref[0], []).append(operation)
    return users


def _read_loop(
    flat: Flat, enters: list[GraphOperation], users: Mapping[str, list[GraphOperation]]
) -> LoopFrame:
    variables: list[LoopVariable] = []
    condition: Ref | None = None
    for index, enter in enumerate(enters):
        merge = _first_user(users, enter.name, MERGE)
        if merge is None:
            continue  # No Merge: the value is the same in every iteration.
        back = next((flat.operations.get(ref[0]) for ref in flat.inputs(merge) if ref[0] != enter.name), None)
        if back is None or back.op not in NEXT or not back.inputs:
            raise ValueError(f"{merge.name!r} gets nothing back from the body")
        # The condition reads the Merge as well, so that only a Switch of the value itself counts.
        switches = [user for user in users.get(merge.name, ()) if user.op in SWITCH]
        switch = next((user for user in switches if flat.inputs(user)[0] == (merge.name, 0)), None)
        exit_ = _first_user(users, switch.name, EXIT) if switch else None
        variables.append(
            LoopVariable(
                index,
                merge.name,
                switch.name if switch else None,
                back.inputs[0],
                exit_.name if exit_ else None,
            )
        )
        if switch:
            condition = flat.inputs(switch)[1]
    decides = flat.operations.get(condition[0]) if condition else None
    if decides is None or decides.op != "LoopCond" or not decides.inputs:
        raise ValueError("nothing decides when it ends")
    return LoopFrame(tuple(e.name for e in enters), tuple(variables), decides.inputs[0])


def _first_user(
    users: Mapping[str, list[GraphOperation]], name: str, operators: tuple[str, ...]
) -> GraphOperation | None:
    return next((user for user in users.get(name, ()) if user.op in operators), None)
