"""Make graphs: node by node in a frontend, or from another graph by a rule in a transform."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Graph, Node, Quant, Shape, State, Storage, Tensor, frozen
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError, Spec
from mace_core.ops.shapes import need
from mace_core.quantization import compute, fault, kept

NEXT = ".next"
"""Behind the name of a state: the output that holds its value after the run."""

FOLD_LIMIT = 1 << 20
"""Bytes up to which a node of constants is computed at once; above it, only if that makes the model no larger."""

MOST_ELEMENTS = 1 << 32
"""Of a tensor: more is damage, or a mistake in a shape."""


class Builder:
    """A graph under construction: every node is checked and its outputs inferred as it is added."""

    def __init__(self, name: str, ops: Mapping[str, Op] | None = None) -> None:
        self.name = name
        self.ops = ops or core_ops()
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.weights: dict[str, Array] = {}
        self.inputs: list[str] = []
        self.notes: list[str] = []
        self.states: list[State] = []
        self.storages: dict[str, Storage] = {}
        self.reserved: frozenset[str] = frozenset()
        self._starts: dict[str, Array] = {}
        self._next: dict[str, str] = {}
        self._state_ports: set[str] = set()
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._node_numbers: dict[str, int] = {}
        self._producers: dict[str, Node] = {}

    def input(self, name: str, dtype: DType, shape: Shape, quant: Quant | None = None) -> str:
        """Declare an input of the model."""
        self.tensors[name] = self._checked(Tensor(name, dtype, shape, quant))
        self.inputs.append(name)
        return name

    def state(self, name: str, start: Array, quant: Quant | None = None) -> str:
        """Declare a state with the value that it has before the first run; return the tensor that holds it before each run.

        A name that is taken gets a number. `set_next` states the value after the run; a state without one is a constant.
        """
        name = self.input(self.fresh(name), DType.of(start), start.shape, quant)
        self._starts[name] = frozen(start)
        return name

    def begin(self, name: str, start: Array) -> None:
        """Let an input that the deployment file names be a state with this value before the first run; it stays an input in any case."""
        self._starts[name] = frozen(start)
        self._state_ports.add(name)

    def set_next(self, state: str, tensor: str) -> None:
        """Let a state hold the value of this tensor after the run, in place of one that was stated before."""
        self._next[state] = tensor

    def weight(self, name: str, array: Array, quant: Quant | None = None) -> str:
        """Declare a constant; a name that is taken gets a number."""
        name = self.fresh(name)
        self.tensors[name] = self._checked(Tensor(name, DType.of(array), array.shape, quant))
        self.weights[name] = frozen(array)
        return name

    def stored(self, stem: str, storage: Storage | None) -> str:
        """Return a free name for an output of the next node, whose real numbers will be stored so; None for as floats."""
        name = self.fresh(stem)
        if storage:
            self.storages[name] = storage
        return name

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str] | int = 1,
        like: Node | None = None,
    ) -> tuple[str, ...]:
        """Append a node and return its outputs' names; one whose inputs are all small constants is computed at once.

        outputs: the names, or how many to invent.
        like: the node that this one stands for; gives its name and sources.

        Real outputs are stored as `stored` was told for their names, else as the data that the op only moves, else as floats.
        """
        op = self.ops[op] if isinstance(op, str) else op
        stem = like.name if like else (outputs[0] if not isinstance(outputs, int) and outputs else op.name)
        try:
            complete = op.complete(attrs or {})
            names = tuple(outputs) if not isinstance(outputs, int) else self._invent(stem, outputs)
            op.check_arity(len(inputs), len(names))
            op.check_present(inputs)
            tensors = [self.tensors[i] if i else None for i in inputs]
            specs = op.infer([t and t.real for t in tensors], complete)
            need(all(prod(map(int, shape)) <= MOST_ELEMENTS for _, shape in specs), f"makes a tensor of more than {MOST_ELEMENTS} elements")
        except OpError as error:
            raise MaceError(f"{self.name}: node {stem!r} ({op.name})", str(error)) from None
        default = kept(op, tensors, complete)
        made = [self._made(n, spec, self.storages.get(n, default)) for n, spec in zip(names, specs, strict=False)]
        sources = like.sources if like else (stem,)
        node = Node(self._node_name(stem), op, tuple(inputs), names, complete, sources)
        if self._folds(node, made):
            return self._fold(node, made)
        return self._append(node, made)

    def keep(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        """Append a node of another graph, whose inputs are here what they are there, with the outputs that it has there."""
        name = self._node_name(node.name)
        return self._append(node if name == node.name else replace(node, name=name), outputs)

    def _append(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        self.tensors.update((t.name, t) for t in outputs)
        self.nodes.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))
        return node.outputs

    def one(self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, **how: Any) -> str:
        """Append a node and return the name of its first output."""
        return self.add(op, inputs, attrs, **how)[0]

    def producer(self, tensor: str) -> Node | None:
        """The node that computes a tensor; None for an input or a constant."""
        return self._producers.get(tensor)

    def constant(self, tensor: str) -> Array | None:
        """A constant's numbers; None for a tensor that is computed, absent or quantized."""
        return None if tensor in self.tensors and self.tensors[tensor].quant else self.weights.get(tensor)

    def shape(self, tensor: str) -> Shape:
        """A tensor's shape."""
        return self.tensors[tensor].shape

    def fresh(self, stem: str) -> str:
        """A tensor name that is not taken: the stem, or the stem with a number."""
        return _free(stem, lambda name: name in self.tensors or name in self.reserved, self._numbers)

    def finish(self, outputs: Sequence[str], names: Sequence[str] | None = None) -> Graph:
        """The graph that computes these tensors, without what nothing reads; `names` are their public names if others.

        The values of states after the run become outputs behind them, unless they are among them.
        """
        outputs, names, states = self._with_states(outputs, names or outputs)
        now: dict[str, str] = {}
        made: list[str] = []
        for tensor, name in zip(outputs, names, strict=True):
            if name in self.tensors and name not in (now.get(tensor, tensor), *self.inputs, *made):
                now[name] = self._rename(name, self.fresh(name))  # an inner tensor gives way
            made.append(self._as(now.get(tensor, tensor), name, made))
            now[tensor] = made[-1]
        live = self._ancestors(made)
        kept = [node for node in self.nodes if live.intersection(node.outputs)]
        live.update(self.inputs, *(n.outputs for n in kept))
        tensors = {n: t for n, t in self.tensors.items() if n in live}
        weights = {n: w for n, w in self.weights.items() if n in live}
        notes = tuple(dict.fromkeys(self.notes))
        ends = tuple(self.inputs), tuple(made)
        return Graph(self.name, tuple(kept), MappingProxyType(tensors), MappingProxyType(weights), *ends, notes, states)

    def _with_states(self, outputs: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str], tuple[State, ...]]:
        """Return the outputs and their public names with those of states, and the states.

        A state that nothing changes becomes a constant; one that no output of any run depends on disappears.
        """
        outputs, names, states = list(outputs), list(names), list(self.states)
        changed = {name: after for name, after in self._next.items() if after != name}
        live = self._live_states(outputs, changed)
        for name, start in self._starts.items():
            if name not in changed or name not in live:
                self._drop_state(name, start)
                continue
            public = name + NEXT
            if (changed[name], public) not in zip(outputs, names, strict=True):
                public = _free(public, lambda taken: taken in (*names, *self.inputs), {})
                outputs.append(changed[name])
                names.append(public)
            self._check_same(name, changed[name])
            states.append(State(name, public, start))
        return outputs, names, tuple(states)

    def _check_same(self, state: str, after: str) -> None:
        """Raise MaceError unless a tensor can be the next value of a state."""
        old, new = self.tensors[state], self.tensors[after]
        if (old.dtype, old.shape, old.quant) != (new.dtype, new.shape, new.quant):
            kinds = [f"{t.dtype.value}{list(t.shape)}{f', {t.quant}' if t.quant else ''}" for t in (old, new)]
            problem = f"is {kinds[0]} before a run and {kinds[1]} after it"
            raise MaceError(f"{self.name}: state {state!r}", problem, "convert the model again, so that both are the same")

    def _drop_state(self, name: str, start: Array) -> None:
        if name not in self._state_ports:
            self.inputs.remove(name)
            self.weights[name] = start

    def _live_states(self, outputs: Sequence[str], changed: Mapping[str, str]) -> set[str]:
        """Return the states that the outputs of this run, or through other states those of a later one, are computed of."""
        live = set(self._state_ports)
        while True:
            read = self._ancestors([*outputs, *(changed[name] for name in live if name in changed)])
            found = live | (read & self._starts.keys())
            if found == live:
                return live
            live = found

    def _ancestors(self, tensors: Iterable[str]) -> set[str]:
        """Return these tensors and all that they are computed of."""
        found = set(tensors)
        for node in reversed(self.nodes):
            if found.intersection(node.outputs):
                found.update(filter(None, node.inputs))
        return found

    def _as(self, tensor: str, name: str, taken: Sequence[str]) -> str:
        """Let a tensor that a node computes bear a public name: in place if it may, else through an Identity."""
        if tensor == name and name in self.weights:  # every output is written by some node
            array = self.weights.pop(name)
            self.tensors.pop(name)
            return self.one("Identity", [self.weight(f"{name}.constant", array)], outputs=[name])
        if tensor == name:
            return name
        if tensor not in self._producers or name in self.tensors or tensor in taken:
            return self.one("Identity", [tensor], outputs=[name] if name not in self.tensors else 1)
        return self._rename(tensor, name)

    def _rename(self, tensor: str, name: str) -> str:
        self.tensors[name] = replace(self.tensors.pop(tensor), name=name)
        if tensor in self.weights:
            self.weights[name] = self.weights.pop(tensor)
        swap = {tensor: name}
        for i, n in enumerate(self.nodes):
            if tensor in n.inputs or tensor in n.outputs:
                self.nodes[i] = n = _with_names(n, swap)
                self._producers.update(dict.fromkeys(n.outputs, n))
        return name

    def _invent(self, stem: str, count: int) -> tuple[str, ...]:
        names: list[str] = []
        for _ in range(count):
            names.append(_free(stem, lambda name: name in self.tensors or name in self.reserved or name in names, self._numbers))
        return tuple(names)

    def _node_name(self, stem: str) -> str:
        name = _free(stem, self._names.__contains__, self._node_numbers)
        self._names.add(name)
        return name

    def _folds(self, node: Node, outputs: Sequence[Tensor]) -> bool:
        if not all(not i or i in self.weights for i in node.inputs) or node.op.name in ("Identity", "Dequantize"):
            return False
        size = sum(t.bytes for t in outputs)
        return size <= FOLD_LIMIT or size <= sum(self.tensors[i].bytes for i in node.inputs if i)

    def _fold(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        arrays = compute(node.op, node.attrs, [(self.tensors[i], self.weights[i]) if i else None for i in node.inputs], outputs)
        return tuple(self.weight(t.name, a, t.quant) for t, a in zip(outputs, arrays, strict=False))

    def _made(self, name: str, spec: Spec, storage: Storage | None) -> Tensor:
        """The tensor that a node computes; only real numbers have a storage of their own."""
        dtype, shape = spec[0], tuple(map(int, spec[1]))
        if storage and dtype is DType.F32:
            return self._checked(Tensor(name, storage.dtype, shape, storage.quant))
        return Tensor(name, dtype, shape)

    def _checked(self, tensor: Tensor) -> Tensor:
        if wrong := fault(tensor):
            raise MaceError(f"{self.name}: tensor {tensor.name!r}", wrong, "quantize the model again")
        return tensor


@dataclass(frozen=True)
class Match:
    """A node that a rule looks at, its inputs already those of the new graph.

    uses: how often each tensor of the *old* graph is read.
    """

    node: Node
    new: Builder
    uses: Mapping[str, int]

    def feeder(self, index: int, *ops: str) -> Node | None:
        """The node that computes input `index`, if it is one of these ops (or any) and nothing else reads its result.

        None where its result is rounded to be stored: without it, that rounding would be lost.
        """
        inputs = self.node.inputs
        found = self.new.producer(inputs[index]) if index < len(inputs) and inputs[index] else None
        if found is None or (ops and found.op.name not in ops) or self.uses.get(inputs[index], 1) != 1:
            return None
        return None if self._rounds(found, inputs[index]) else found

    def _rounds(self, node: Node, result: str) -> bool:
        stored = self.new.tensors[result].storage
        return stored is not None and not (node.op.moves and self.new.tensors[node.inputs[0]].storage == stored)

    def constant(self, index: int) -> Array | None:
        """The data of input `index` if it is a constant that holds its numbers as they are."""
        inputs = self.node.inputs
        return self.new.constant(inputs[index]) if index < len(inputs) and inputs[index] else None

    def emit(self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Add a node that computes what this one computes."""
        return self.new.add(op, inputs, attrs, outputs=self.node.outputs, like=self.node)

    def joined(self, other: Node) -> Node:
        """The node with the sources of another as well: what a node that computes both stands for."""
        return replace(self.node, sources=tuple(dict.fromkeys((*other.sources, *self.node.sources))))

    def shape(self, index: int) -> Shape:
        """Shape of input `index`."""
        return self.new.shape(self.node.inputs[index])


Rule = Callable[[Match], Sequence[str] | None]
"""Names of the tensors that replace the node's outputs, or None to keep the node."""


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Rebuild a graph in order, each node as the rule says; what the rule leaves unread disappears."""
    new = Builder(graph.name)
    for name in graph.inputs:
        new.tensors[name] = graph.tensors[name]
        new.inputs.append(name)
    for name, array in graph.weights.items():
        new.weights[name], new.tensors[name] = array, graph.tensors[name]
    new.reserved = frozenset(graph.tensors)  # a new tensor must not take the name of one that is still to come
    new.storages = {n: t.storage for n, t in graph.tensors.items() if t.storage}
    new.states = list(graph.states)
    now: dict[str, str] = {}
    uses = graph.uses()
    for node in graph.nodes:
        node = _with_names(node, now, outputs=False)
        result = rule(Match(node, new, uses))
        if result is None and _unchanged(node, new, graph):
            result = new.keep(node, [graph.tensors[o] for o in node.outputs])
        elif result is None:
            result = new.add(node.op, node.inputs, node.attrs, outputs=node.outputs, like=node)
        now.update((old, by) for old, by in zip(node.outputs, result, strict=False) if old != by)
        for old, by in zip(node.outputs, result, strict=False):
            if old != by:  # readers of the old tensor now read this one; if it existed, this node no longer does
                uses[by] = uses[old] + (uses[by] - 1 if by in uses else 0)
    return new.finish([now.get(o, o) for o in graph.outputs], graph.outputs)


def copy_nodes(graph: Graph, new: Builder, renamed: Mapping[str, str]) -> dict[str, str]:
    """Add the weights and nodes of a graph to a builder; return what its tensors are called there, where that is something else.

    renamed: tensors of the builder that its nodes read in place of their own. What becomes constant is computed.
    """
    renamed = dict(renamed)
    for name, array in graph.weights.items():
        new.weights[name], new.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs = [renamed.get(name, name) for name in node.inputs]
        outputs = new.add(node.op, inputs, node.attrs, outputs=node.outputs, like=node)
        renamed.update((old, by) for old, by in zip(node.outputs, outputs, strict=True) if old != by)
    return renamed


def _unchanged(node: Node, new: Builder, graph: Graph) -> bool:
    """Whether a node reads in the new graph what it reads in the old one."""
    for name in filter(None, node.inputs):
        before, after = graph.tensors.get(name), new.tensors[name]
        if (after is not before and after != before) or (name in new.weights) != (name in graph.weights):
            return False
    return True


def _with_names(node: Node, now: Mapping[str, str], outputs: bool = True) -> Node:
    ins = tuple(now.get(i, i) for i in node.inputs)
    outs = tuple(now.get(o, o) for o in node.outputs) if outputs else node.outputs
    # Most nodes read what they read before: `replace` would take a quarter of the time of all transforms of a small graph.
    return node if (ins, outs) == (node.inputs, node.outputs) else replace(node, inputs=ins, outputs=outs)


def _free(stem: str, taken: Callable[[str], bool], numbers: dict[str, int]) -> str:
    """The stem if it is free, else with the next number; numbers: where to go on, so that thousands of one stem cost no search."""
    if not taken(stem):
        return stem
    number = numbers.get(stem, 1)
    while taken(f"{stem}.{number}"):
        number += 1
    numbers[stem] = number
    return f"{stem}.{number}"
