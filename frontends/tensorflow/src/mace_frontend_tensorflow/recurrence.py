"""Loops, turn by turn.

One that is a recurrent layer over a sequence becomes that layer as soon as two turns have shown it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Node
from mace_frontend_tensorflow.cell import Cell, Turn, cell_of
from mace_frontend_tensorflow.flat import Flat, Operation, Ref
from mace_frontend_tensorflow.held import Held, TensorList
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops.movement import stacked, unstacked

TURNS = 4096
"""How often a loop may turn."""

TOO_LONG = f"it turns more than {TURNS} times; shorten it, or cut the graph before it with output_tensors"


@dataclass
class Loop:
    """A loop at work. values: its variables before every turn so far; fixed: what is the same in every turn.

    more: whether another turn follows, of the variables and the turn's number; body: one turn.
    counts: whether the variables at the first places say which items of lists a turn reads and writes, and
    nothing else; and whether those at the second places have no say in when it ends.
    """

    node: TensorFlowNode
    values: list[Sequence[Held]]
    fixed: Sequence[Held]
    more: Callable[[Sequence[Held], int], Held]
    body: Callable[[Sequence[Held], int], Sequence[Held]]
    counts: Callable[[Collection[int], Collection[int]], bool]
    marks: list[int] = field(default_factory=list)

    def run(self) -> Sequence[Held]:
        """The variables at the end; RefusedError if when that is is known at run time only, or too late."""
        for turn in range(TURNS + 1):
            self.marks.append(len(self.node.builder.nodes))
            if turn == 2 and (short := self._as_layer()) is not None:
                return short
            if not self.goes_on(self.values[-1], turn):
                return self.values[-1]
            self.node.refuse_unless(turn < TURNS, TOO_LONG)
            self.values.append(self.body(self.values[-1], turn))
            self.node.refuse_unless(
                len(self.values[-1]) == len(self.values[0]),
                "its body gives more or fewer values than it takes",
            )
        return self.values[-1]

    def goes_on(self, values: Sequence[Held], turn: int) -> bool:
        """Whether another turn follows."""
        known = self.node.importer.array(self.more(values, turn))
        if known is None:
            raise RefusedError(
                "when it ends is known at run time only; export the model with a fixed number of turns"
            )
        return bool(known.reshape(()))

    def _as_layer(self) -> Sequence[Held] | None:
        """The variables at the end, computed by one layer; None if it is none."""
        parts = _Parts.of(self)
        if parts is None or not self.counts(parts.counters, (*parts.states, *parts.written)):
            return None
        turns = parts.turns(self)
        cell = cell_of(parts.turn) if turns > 2 and parts.sequence(turns) else None
        return parts.computed(self, cell, turns) if cell is not None else None


@dataclass(frozen=True)
class _Parts:
    """What the variables of a loop are, by their places: counters with what they grow by, states, and lists that are written."""

    counters: Mapping[int, tuple[int, int]]
    states: tuple[int, ...]
    written: tuple[int, ...]
    turn: Turn
    read: TensorList
    places: tuple[int, int]

    @classmethod
    def of(cls, loop: Loop) -> _Parts | None:
        """From two turns; None if they are nothing of a recurrent layer."""
        counters: dict[int, tuple[int, int]] = {}
        states, written = [], []
        for place, values in enumerate(zip(*loop.values, strict=True)):
            arrays = [loop.node.importer.array(v) for v in values]
            if values[1] is values[2] or values[1] == values[2]:
                continue
            if all(isinstance(v, TensorList) for v in values):
                written.append(place)
            elif all(a is not None and a.dtype.kind == "i" and a.size == 1 for a in arrays):
                first, second, third = (int(a.reshape(())) for a in arrays if a is not None)
                if third - second != second - first:
                    return None
                counters[place] = (first, second - first)
            elif isinstance(values[1], str) and isinstance(values[2], str):
                states.append(place)
            else:
                return None
        return cls._with_turn(loop, counters, tuple(states), tuple(written)) if states else None

    @classmethod
    def _with_turn(
        cls,
        loop: Loop,
        counters: Mapping[int, tuple[int, int]],
        states: tuple[int, ...],
        written: tuple[int, ...],
    ) -> _Parts | None:
        """Find what the second turn reads besides its states: an item of a list, as the first turn read the one before."""
        before, after = ([str(values[s]) for s in states] for values in loop.values[1:3])
        nodes = _needed(loop.node.builder.nodes[loop.marks[1] : loop.marks[2]], after)
        read = _read(loop, nodes, before)
        first = _needed(loop.node.builder.nodes[: loop.marks[1]], before)
        lists = [v for v in (*loop.values[0], *loop.fixed) if isinstance(v, TensorList)]
        for items in lists:
            if len(read) == 1 and read[0] in items.items:
                place = items.items.index(read[0])
                known = {i for node in first for i in node.inputs}
                others = [
                    p for p in (place - 1, place + 1) if 0 <= p < len(items.items) and items.items[p] in known
                ]
                if len(others) == 1:
                    turn = Turn(loop.node.builder, nodes, read[0], tuple(before), tuple(after))
                    return cls(counters, states, written, turn, items, (others[0], place))
        return None

    def turns(self, loop: Loop) -> int:
        """How often the loop turns, by its counters alone; 0 for too often."""
        values = list(loop.values[2])
        for turn in range(2, TURNS + 1):
            for place, (first, step) in self.counters.items():
                values[place] = self._counter(loop, place, first + step * turn)
            if not loop.goes_on(values, turn):
                return turn
        return 0

    def _counter(self, loop: Loop, place: int, number: int) -> str:
        array = loop.node.importer.array(loop.values[0][place])
        assert array is not None
        return loop.node.add_constant(
            np.asarray(number, array.dtype).reshape(array.shape), tag=f"counter{place}"
        )

    def sequence(self, turns: int) -> bool:
        """Whether the turns read the list's items one after another, all of them, from either end."""
        return len(self.read.items) == turns and self.places in ((0, 1), (turns - 1, turns - 2))

    def computed(self, loop: Loop, cell: Cell, turns: int) -> Sequence[Held] | None:
        """The variables at the end.

        None if a list is written otherwise than by every turn, or by the last.
        """
        plans = {place: self._writes(loop, place, cell, turns) for place in self.written}
        node = loop.node
        begin = [node.importer.tensor(loop.values[0][place]) for place in self.states]
        if None in plans.values() or any(
            node.builder.shape(b) != node.builder.shape(s)
            for b, s in zip(begin, self.turn.states, strict=True)
        ):
            return None
        sequence = self.read.whole or node.importer.tensor(
            stacked(node, [node.importer.tensor(i) for i in self.read.items], 0)[0]
        )
        order = (cell.hidden, *(i for i in range(len(self.states)) if i != cell.hidden))
        first = [begin[i] for i in order]
        batch, width = node.builder.shape(first[0])
        weights = [
            node.add_constant(a[None], tag=tag)
            for tag, a in (("weights", cell.w), ("recurrent", cell.r), ("bias", cell.b))
        ]
        states = [node.reshape(s, (1, batch, width), "state") for s in first]
        attrs = {**cell.attrs(), "direction": "forward" if self.places[0] == 0 else "reverse"}
        made = node.emit_all(
            cell.op, [sequence, *weights, "", *states], attrs, count=1 + len(states), tag=cell.op.lower()
        )
        ends = {
            self.states[i]: node.reshape(end, (batch, width), "end")
            for i, end in zip(order, made[1:], strict=True)
        }
        results = list(loop.values[2])
        for place, (start, step) in self.counters.items():
            results[place] = self._counter(loop, place, start + step * turns)
        for place, each in plans.items():
            results[place] = self._list(
                loop, place, made[0] if each else ends[self.states[cell.hidden]], bool(each)
            )
        for place, end in ends.items():
            results[place] = end
        return results

    def _writes(self, loop: Loop, place: int, cell: Cell, turns: int) -> bool | None:
        """True if every turn writes its hidden state where it read, False if all write it to the first place, None for anything else."""
        lists = [values[place] for values in loop.values]
        changed = []
        for turn, (old, new) in enumerate(pairwise(lists)):
            assert isinstance(old, TensorList)
            assert isinstance(new, TensorList)
            where = [i for i, item in enumerate(new.items) if i >= len(old.items) or old.items[i] != item]
            if len(where) != 1 or new.items[where[0]] != loop.values[turn + 1][self.states[cell.hidden]]:
                return None
            changed.append(where[0])
        final = lists[-1]
        assert isinstance(final, TensorList)
        if tuple(changed) == self.places and len(final.items) in (len(changed), turns):
            return True
        return False if not any(changed) else None

    def _list(self, loop: Loop, place: int, tensor: str, each: bool) -> TensorList:
        """The list as it is written at the end: the layer's steps, or one item."""
        node, old = loop.node, loop.values[2][place]
        assert isinstance(old, TensorList)
        if not each:
            return replace(old, items=(tensor, *old.items[1:]), whole=None)
        steps, _, batch, width = node.builder.shape(tensor)
        whole = node.reshape(tensor, (steps, batch, width), "steps")
        return replace(old, items=tuple(unstacked(node, whole, 0)[1]), whole=whole)


COUNTING = ("Add", "AddV2", "Identity", "Sub")
ENDING = ("Exit", "NextIteration", "RefExit", "RefNextIteration")
PLACED = ("TensorArrayReadV3", "TensorArrayWriteV3", "TensorListGetItem", "TensorListSetItem")
"""Operators whose second operand says which item of a list they mean."""


def only_counts(flat: Flat, counters: Sequence[Ref]) -> bool:
    """Whether values are only added to, and say which item of a list is meant."""
    users: dict[str, list[Operation]] = {}
    for operation in flat.operations.values():
        for name in {ref[0] for ref in flat.inputs(operation)}:
            users.setdefault(name, []).append(operation)
    seen, left = set(), [name for name, _ in counters]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for user in users.get(name, ()):
            if user.op in COUNTING:
                left.append(user.name)
            elif user.op not in (*ENDING, *PLACED) or (
                user.op in PLACED and [n for n, _ in flat.inputs(user)].index(name) != 1
            ):
                return False
    return True


def unread(flat: Flat, refs: Collection[Ref], passing: Sequence[str] = ()) -> bool:
    """Whether no operation but of these operators reads any of these outputs."""
    return not any(
        o.op not in passing and not {*flat.inputs(o)}.isdisjoint(refs) for o in flat.operations.values()
    )


def _needed(nodes: Sequence[Node], results: Sequence[str]) -> list[Node]:
    """Of nodes in order those that compute these."""
    live, found = set(results), []
    for node in reversed(nodes):
        if live.intersection(node.outputs):
            found.append(node)
            live.update(node.inputs)
    return found[::-1]


def _read(loop: Loop, nodes: Sequence[Node], states: Sequence[str]) -> list[str]:
    """What nodes read that is neither a constant nor a state, nor made by one of them."""
    own = {*states, *(o for n in nodes for o in n.outputs), *loop.node.builder.weights}
    return list(dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in own))
