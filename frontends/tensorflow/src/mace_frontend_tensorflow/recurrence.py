"""Runs loops iteration by iteration.

A loop that is a recurrent layer over a sequence becomes that layer as soon as two iterations have shown it:
unrolled, a layer of some hundred steps would be a library of thousands of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Node
from mace_frontend_tensorflow.cell import Cell, Iteration, find_cell
from mace_frontend_tensorflow.flat import Flat, GraphOperation, Ref
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops.movement import done_stack, unstack
from mace_frontend_tensorflow.values import OptionalValue, TensorList

MAX_ITERATIONS = 4096
"""Iterations of a loop, unrolled or as steps of a layer."""


@dataclass
class LoopRun:
    """A loop that is being run.

    values: its variables before every iteration so far.
    fixed: what is the same in every iteration.
    condition: whether another iteration follows, by the variables and the number of the iteration.
    body: one iteration: the variables after it, by the same.
    counts: takes two groups of variables by their indices. Tells whether the first do nothing but say which
    items of lists are read and written, and whether the second have no say in when the loop ends.
    node_counts: how many nodes the graph had before every iteration.
    """

    node: TensorFlowNode
    values: list[Sequence[OptionalValue]]
    fixed: Sequence[OptionalValue]
    condition: Callable[[Sequence[OptionalValue], int], OptionalValue]
    body: Callable[[Sequence[OptionalValue], int], Sequence[OptionalValue]]
    counts: Callable[[Collection[int], Collection[int]], bool]
    node_counts: list[int] = field(default_factory=list)

    def run(self) -> Sequence[OptionalValue]:
        """Return the variables at the end; RefusedError if that is known at run time only, or too late."""
        for iteration in range(MAX_ITERATIONS + 1):
            self.node_counts.append(len(self.node.builder.nodes))
            # Two iterations show what changes between them; the nodes of both are unused if they become a
            # layer.
            if iteration == 2 and (values := self._as_layer()) is not None:
                return values
            if not self.goes_on(self.values[-1], iteration):
                return self.values[-1]
            self.node.refuse_unless(
                iteration < MAX_ITERATIONS,
                f"it has more than {MAX_ITERATIONS} iterations",
                f"shorten it, or {CUT_BEFORE}",
            )
            self.values.append(self.body(self.values[-1], iteration))
            self.node.refuse_unless(
                len(self.values[-1]) == len(self.values[0]),
                "its body returns more or fewer values than it takes",
            )
        return self.values[-1]

    def goes_on(self, values: Sequence[OptionalValue], iteration: int) -> bool:
        """Tell whether another iteration follows."""
        answer = self.node.importer.array(self.condition(values, iteration))
        if answer is None:
            raise RefusedError(
                "when it ends is known at run time only; export the model with a fixed number of iterations"
            )
        return bool(answer.reshape(()))

    def _as_layer(self) -> Sequence[OptionalValue] | None:
        """Return the variables at the end, computed by one layer; None if the loop is none."""
        roles = _Roles.find(self)
        if roles is None or not self.counts(roles.counters, (*roles.states, *roles.written)):
            return None
        steps = roles.count_iterations(self)
        if steps <= 2 or not roles.reads_whole_sequence(steps):
            return None
        cell = find_cell(roles.iteration)
        return roles.add_layer(self, cell, steps) if cell is not None else None


@dataclass(frozen=True)
class _Roles:
    """What the variables of a loop are, if it may be a recurrent layer; variables are known by their index.

    counters: variables that grow: where they begin, and by how much they grow.
    states: variables that are computed from one another.
    written: lists that iterations write.
    iteration: what the second iteration computes.
    sequence: the list that iterations read.
    read_indices: which items of the list the first and the second iteration read.
    """

    counters: Mapping[int, tuple[int, int]]
    states: tuple[int, ...]
    written: tuple[int, ...]
    iteration: Iteration
    sequence: TensorList
    read_indices: tuple[int, int]

    @classmethod
    def find(cls, loop: LoopRun) -> _Roles | None:
        """Return the roles that two iterations show; None if the loop is no recurrent layer."""
        counters: dict[int, tuple[int, int]] = {}
        states, written = [], []
        for index, values in enumerate(zip(*loop.values, strict=True)):
            arrays = [loop.node.importer.array(value) for value in values]
            if values[1] is values[2] or values[1] == values[2]:
                continue
            if all(isinstance(value, TensorList) for value in values):
                written.append(index)
            elif all(a is not None and a.dtype.kind == "i" and a.size == 1 for a in arrays):
                first, second, third = (int(a.reshape(())) for a in arrays if a is not None)
                if third - second != second - first:
                    return None
                counters[index] = (first, second - first)
            elif isinstance(values[1], str) and isinstance(values[2], str):
                states.append(index)
            else:
                return None
        return cls._with_iteration(loop, counters, tuple(states), tuple(written)) if states else None

    @classmethod
    def _with_iteration(
        cls,
        loop: LoopRun,
        counters: Mapping[int, tuple[int, int]],
        states: tuple[int, ...],
        written: tuple[int, ...],
    ) -> _Roles | None:
        """Find the item of a list that the second iteration reads, and the neighbor that the first one read.

        None if an iteration reads something else of its own, or if nothing tells the direction.
        """
        before, after = ([str(values[state]) for state in states] for values in loop.values[1:3])
        nodes = _needed_nodes(loop.node.builder.nodes[loop.node_counts[1] : loop.node_counts[2]], after)
        read = _external_inputs(loop, nodes, before)
        if len(read) != 1:
            return None
        first_nodes = _needed_nodes(loop.node.builder.nodes[: loop.node_counts[1]], before)
        first_inputs: set[str] = set()
        for node in first_nodes:
            first_inputs.update(node.inputs)
        for sequence in (*loop.values[0], *loop.fixed):
            if not isinstance(sequence, TensorList) or read[0] not in sequence.items:
                continue
            index = sequence.items.index(read[0])
            neighbors = [i for i in (index - 1, index + 1) if 0 <= i < len(sequence.items)]
            read_before = [i for i in neighbors if sequence.items[i] in first_inputs]
            if len(read_before) == 1:
                iteration = Iteration(loop.node.builder, nodes, read[0], tuple(before), tuple(after))
                return cls(counters, states, written, iteration, sequence, (read_before[0], index))
        return None

    def count_iterations(self, loop: LoopRun) -> int:
        """Return the number of iterations by the counters alone; 0 if there are too many."""
        values = list(loop.values[2])
        for iteration in range(2, MAX_ITERATIONS + 1):
            for index, (first, step) in self.counters.items():
                values[index] = self._counter(loop, index, first + step * iteration)
            if not loop.goes_on(values, iteration):
                return iteration
        return 0

    def _counter(self, loop: LoopRun, index: int, number: int) -> str:
        """Return a constant for a counter, in the type and shape that it has in the loop."""
        array = loop.node.importer.array(loop.values[0][index])
        assert array is not None
        elements = np.asarray(number, array.dtype).reshape(array.shape)
        return loop.node.add_constant(elements, tag=f"counter{index}")

    def reads_whole_sequence(self, steps: int) -> bool:
        """Tell whether the iterations read all items of the list one after another, from either end."""
        return len(self.sequence.items) == steps and self.read_indices in ((0, 1), (steps - 1, steps - 2))

    def add_layer(self, loop: LoopRun, cell: Cell, steps: int) -> Sequence[OptionalValue] | None:
        """Add the layer; return the variables at the end.

        None if a list is written in another way than by every iteration, or by the last.
        """
        writes = {index: self._writes_every_step(loop, index, cell, steps) for index in self.written}
        node, builder = loop.node, loop.node.builder
        begin = [node.importer.tensor(loop.values[0][index]) for index in self.states]
        # A state that begins as a smaller tensor is broadcast by the first iteration, but not by the layer.
        pairs = zip(begin, self.iteration.states, strict=True)
        if None in writes.values() or any(builder.shape(a) != builder.shape(b) for a, b in pairs):
            return None
        # The op of the IR has the hidden state first.
        order = (cell.hidden, *(i for i in range(len(self.states)) if i != cell.hidden))
        outputs = self._add_op(loop, cell, [begin[i] for i in order])
        batch, width = builder.shape(begin[cell.hidden])
        last_states = {
            self.states[i]: node.reshape(state, (batch, width), "end")
            for i, state in zip(order, outputs[1:], strict=True)
        }
        results = list(loop.values[2])
        for index, (first, step) in self.counters.items():
            results[index] = self._counter(loop, index, first + step * steps)
        for index, every_step in writes.items():
            tensor = outputs[0] if every_step else last_states[self.states[cell.hidden]]
            results[index] = self._written_list(loop, index, tensor, bool(every_step))
        for index, state in last_states.items():
            results[index] = state
        return results

    def _add_op(self, loop: LoopRun, cell: Cell, begin: Sequence[str]) -> tuple[str, ...]:
        """Add the IR's op of the layer; return its sequence of hidden states, and its last states."""
        node = loop.node
        sequence = self.sequence.stacked
        if not sequence:
            items = [node.importer.tensor(item) for item in self.sequence.items]
            sequence = node.importer.tensor(done_stack(node, items, 0)[0])
        batch, width = node.builder.shape(begin[0])
        weights = [
            node.add_constant(array[None], tag=tag)
            for tag, array in (("weights", cell.w), ("recurrent", cell.r), ("bias", cell.b))
        ]
        states = [node.reshape(state, (1, batch, width), "state") for state in begin]
        direction = "forward" if self.read_indices[0] == 0 else "reverse"
        attrs = {**cell.attrs(), "direction": direction}
        # The empty input is the lengths of sequences: all steps count.
        inputs = [sequence, *weights, "", *states]
        return node.emit_all(cell.op, inputs, attrs, count=1 + len(states), tag=cell.op.lower())

    def _writes_every_step(self, loop: LoopRun, index: int, cell: Cell, steps: int) -> bool | None:
        """Tell how the iterations write their hidden state to a list.

        True if each writes it at the index that it reads, False if all write it at the first index, so that
        the last one counts; None for anything else.
        """
        lists = [values[index] for values in loop.values]
        indices = []
        for iteration, (before, after) in enumerate(pairwise(lists)):
            assert isinstance(before, TensorList)
            assert isinstance(after, TensorList)
            changed = [
                i for i, item in enumerate(after.items) if i >= len(before.items) or before.items[i] != item
            ]
            hidden = loop.values[iteration + 1][self.states[cell.hidden]]
            if len(changed) != 1 or after.items[changed[0]] != hidden:
                return None
            indices.append(changed[0])
        final = lists[-1]
        assert isinstance(final, TensorList)
        # A list that is pushed to has as many items as iterations so far, one that was reserved has all.
        if tuple(indices) == self.read_indices and len(final.items) in (len(indices), steps):
            return True
        return False if not any(indices) else None

    def _written_list(self, loop: LoopRun, index: int, tensor: str, every_step: bool) -> TensorList:
        """Return a list as it is at the end: with the steps of the layer as items, or a new first item."""
        node, before = loop.node, loop.values[2][index]
        assert isinstance(before, TensorList)
        if not every_step:
            return replace(before, items=(tensor, *before.items[1:]), stacked=None)
        # The op of the IR has an axis for its directions.
        steps, _, batch, width = node.builder.shape(tensor)
        stacked = node.reshape(tensor, (steps, batch, width), "steps")
        return replace(before, items=tuple(unstack(node, stacked, 0)[1]), stacked=stacked)


COUNTING = ("Add", "AddV2", "Identity", "Sub")
ENDING = ("Exit", "NextIteration", "RefExit", "RefNextIteration")
INDEXED = ("TensorArrayReadV3", "TensorArrayWriteV3", "TensorListGetItem", "TensorListSetItem")
"""Operators whose second operand is the index of an item."""


def only_count(flat: Flat, counters: Sequence[Ref]) -> bool:
    """Tell whether values are only added to, and used as indices of items.

    A counter that is used in another way, such as the number of the step as a feature, has no place in a
    layer.
    """
    users: dict[str, list[GraphOperation]] = {}
    for operation in flat.operations.values():
        for name in {ref[0] for ref in flat.inputs(operation)}:
            users.setdefault(name, []).append(operation)
    seen, pending = set(), [name for name, _ in counters]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        readers = users.get(name, ())
        if not all(_is_counting(flat, reader, name) for reader in readers):
            return False
        pending += [reader.name for reader in readers if reader.op in COUNTING]
    return True


def _is_counting(flat: Flat, reader: GraphOperation, name: str) -> bool:
    """Tell whether an operation adds to a value, uses it as the index of an item, or passes it on."""
    operands = [operand for operand, _ in flat.inputs(reader)]
    is_index = reader.op in INDEXED and operands.index(name) == 1
    return is_index or reader.op in (*COUNTING, *ENDING)


def are_unread(flat: Flat, refs: Collection[Ref], passing: Sequence[str] = ()) -> bool:
    """Tell whether no operation reads any of these outputs, operators in `passing` left aside."""
    return not any(
        operation.op not in passing and not {*flat.inputs(operation)}.isdisjoint(refs)
        for operation in flat.operations.values()
    )


def _needed_nodes(nodes: Sequence[Node], results: Sequence[str]) -> list[Node]:
    """Return, of nodes in order, those that compute the results."""
    live, needed = set(results), []
    for node in reversed(nodes):
        if live.intersection(node.outputs):
            needed.append(node)
            live.update(node.inputs)
    return needed[::-1]


def _external_inputs(loop: LoopRun, nodes: Sequence[Node], states: Sequence[str]) -> list[str]:
    """Return what nodes read that is neither a constant, nor a state, nor computed by one of them.

    A constant that is an item of a list counts as read: the next iteration may read another item.
    """
    listed: set[str | None] = set()
    for value in (*loop.values[0], *loop.fixed):
        if isinstance(value, TensorList):
            listed.update(value.items)
    internal = {"", *states, *(name for name in loop.node.builder.weights if name not in listed)}
    external: dict[str, None] = {}
    for node in nodes:
        internal.update(node.outputs)
    for node in nodes:
        external.update(dict.fromkeys(name for name in node.inputs if name not in internal))
    return list(external)
