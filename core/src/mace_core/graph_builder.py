"""Builds a graph node by node: what frontends and transforms write to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from types import MappingProxyType

from mace_core.attributes import AttributeValues
from mace_core.errors import MaceError
from mace_core.ir import MAX_ELEMENTS, Array, DType, Graph, Node, Quant, Shape, State, Storage, Tensor, frozen
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError, Spec
from mace_core.ops.shapes import need
from mace_core.quantization import compute, fault, propagate_storage

NEXT = ".next"
"""Behind the name of a state: the output that holds its value after the run."""

FOLD_LIMIT = 1 << 20
"""Bytes of results up to which a node of constants is computed at build time.

Above it only if the model gets no larger: an expanded table would cost more flash than its node costs time.
"""


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
        self.tensors[name] = self._check(Tensor(name, dtype, shape, quant))
        self.inputs.append(name)
        return name

    def state(self, name: str, start: Array, quant: Quant | None = None) -> str:
        """Declare a state with the value that it has before the first run.

        Return the tensor that holds it before each run.

        A name that is taken gets a number. `set_next` states the value after the run; a state without one is
        a constant.
        """
        name = self.input(self.fresh(name), DType.of(start), start.shape, quant)
        self._starts[name] = frozen(start)
        return name

    def begin(self, name: str, start: Array) -> None:
        """Let an input that the deployment file names be a state with this value before the first run.

        It stays an input in any case.
        """
        self._starts[name] = frozen(start)
        self._state_ports.add(name)

    def set_next(self, state: str, tensor: str) -> None:
        """Let a state hold the value of this tensor after the run, in place of one that was stated before."""
        self._next[state] = tensor

    def weight(self, name: str, array: Array, quant: Quant | None = None) -> str:
        """Declare a constant; a name that is taken gets a number."""
        name = self.fresh(name)
        self.tensors[name] = self._check(Tensor(name, DType.of(array), array.shape, quant))
        self.weights[name] = frozen(array)
        return name

    def reserve_output(self, stem: str, storage: Storage | None) -> str:
        """Return an unused name for an output of the next node, and note how its real numbers are stored.

        storage: None for floats.
        """
        name = self.fresh(stem)
        if storage:
            self.storages[name] = storage
        return name

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        outputs: Sequence[str] | int = 1,
        like: Node | None = None,
    ) -> tuple[str, ...]:
        """Append a node and return its outputs' names.

        A node whose inputs are all small constants is computed at once.

        outputs: the names, or the number of names to generate.
        attrs: values by name, as `Op.complete` takes them, or the attributes of another node.
        like: a node that this one replaces; gives its name and sources.

        Real outputs are stored as `reserve_output` has noted for their names, else like the input if the op
        only moves data, else as floats.
        """
        op = self._find(op) if isinstance(op, str) else op
        stem = like.name if like else _stem(op, outputs)
        try:
            complete = op.complete(attrs or {})
            names = tuple(outputs) if not isinstance(outputs, int) else self._invent(stem, outputs)
            op.check_arity(len(inputs), len(names))
            op.check_present(inputs)
            tensors = [self.tensors[i] if i else None for i in inputs]
            specs = op.infer([t and t.real for t in tensors], complete)
            need(
                all(prod(map(int, shape)) <= MAX_ELEMENTS for _, shape in specs),
                f"makes a tensor of more than {MAX_ELEMENTS} elements",
            )
        except OpError as error:
            raise MaceError(f"{self.name}: node {stem!r} ({op.name})", str(error)) from None
        default = propagate_storage(op, tensors, complete)
        results = [
            self._infer_tensor(n, spec, self.storages.get(n, default))
            for n, spec in zip(names, specs, strict=False)
        ]
        sources = like.sources if like else (stem,)
        node = Node(self._node_name(stem), op, tuple(inputs), names, complete, sources)
        if self._folds(node, results):
            return self._fold(node, results)
        return self._append(node, results)

    def keep(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        """Append a node of another graph as it is; its inputs must be here what they are there."""
        name = self._node_name(node.name)
        return self._append(node if name == node.name else replace(node, name=name), outputs)

    def _append(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        self.tensors.update((t.name, t) for t in outputs)
        self.nodes.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))
        return node.outputs

    def one(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        outputs: Sequence[str] | int = 1,
        like: Node | None = None,
    ) -> str:
        """Append a node and return the name of its first output."""
        return self.add(op, inputs, attrs, outputs=outputs, like=like)[0]

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
        """The graph that computes these tensors, without what nothing reads.

        `names` are their public names if others.

        The values of states after the run become outputs behind them, unless they are among them.
        """
        outputs, names, states = self._with_states(outputs, names or outputs)
        renamed: dict[str, str] = {}
        results: list[str] = []
        for tensor, name in zip(outputs, names, strict=True):
            if name in self.tensors and name not in (renamed.get(tensor, tensor), *self.inputs, *results):
                renamed[name] = self._rename(name, self.fresh(name))  # an inner tensor gives way
            results.append(self._as(renamed.get(tensor, tensor), name, results))
            renamed[tensor] = results[-1]
        live = self._ancestors(results)
        nodes = [node for node in self.nodes if live.intersection(node.outputs)]
        live.update(self.inputs, *(n.outputs for n in nodes))
        tensors = {n: t for n, t in self.tensors.items() if n in live}
        weights = {n: w for n, w in self.weights.items() if n in live}
        notes = tuple(dict.fromkeys(self.notes))
        interface = tuple(self.inputs), tuple(results)
        return Graph(
            self.name,
            tuple(nodes),
            MappingProxyType(tensors),
            MappingProxyType(weights),
            *interface,
            notes,
            states,
        )

    def _with_states(
        self, outputs: Sequence[str], names: Sequence[str]
    ) -> tuple[list[str], list[str], tuple[State, ...]]:
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
        state_value, next_value = self.tensors[state], self.tensors[after]
        if (state_value.dtype, state_value.shape, state_value.quant) != (
            next_value.dtype,
            next_value.shape,
            next_value.quant,
        ):
            kinds = [
                f"{t.dtype.value}{list(t.shape)}{f', {t.quant}' if t.quant else ''}"
                for t in (state_value, next_value)
            ]
            problem = f"is {kinds[0]} before a run and {kinds[1]} after it"
            raise MaceError(
                f"{self.name}: state {state!r}", problem, "convert the model again, so that both are the same"
            )

    def _drop_state(self, name: str, start: Array) -> None:
        if name not in self._state_ports:
            self.inputs.remove(name)
            self.weights[name] = start

    def _live_states(self, outputs: Sequence[str], changed: Mapping[str, str]) -> set[str]:
        """Return the states that the outputs depend on, in this run or in a later one."""
        # Through other states: a state may only change another one, which an output reads in the next run.
        live = set(self._state_ports)
        while True:
            read = self._ancestors([*outputs, *(changed[name] for name in live if name in changed)])
            reached = live | (read & self._starts.keys())
            if reached == live:
                return live
            live = reached

    def _ancestors(self, tensors: Iterable[str]) -> set[str]:
        """Return these tensors and all that they are computed of."""
        ancestors = set(tensors)
        for node in reversed(self.nodes):
            if ancestors.intersection(node.outputs):
                ancestors.update(filter(None, node.inputs))
        return ancestors

    def _as(self, tensor: str, name: str, taken: Sequence[str]) -> str:
        """Give a tensor a public name: by renaming it if possible, else through an Identity node."""
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
                self.nodes[i] = n = rename_tensors(n, swap)
                self._producers.update(dict.fromkeys(n.outputs, n))
        return name

    def _find(self, name: str) -> Op:
        """Return the op of a name; MaceError names the closest one for a slip of the pen."""
        if name not in self.ops:
            close = get_close_matches(name, self.ops, 1)
            remedy = f"did you mean {close[0]!r}?" if close else "docs/operators.md lists the operators"
            raise MaceError(self.name, f"there is no operator {name!r}", remedy)
        return self.ops[name]

    def _invent(self, stem: str, count: int) -> tuple[str, ...]:
        names: list[str] = []
        for _ in range(count):
            names.append(
                _free(
                    stem,
                    lambda name: name in self.tensors or name in self.reserved or name in names,
                    self._numbers,
                )
            )
        return tuple(names)

    def _node_name(self, stem: str) -> str:
        name = _free(stem, self._names.__contains__, self._node_numbers)
        self._names.add(name)
        return name

    def _folds(self, node: Node, outputs: Sequence[Tensor]) -> bool:
        if not all(not i or i in self.weights for i in node.inputs) or node.op.name in (
            "Identity",
            "Dequantize",
        ):
            return False
        inputs = [self.tensors[name] for name in node.inputs if name]
        # Weights are often in half precision only to save bytes of the file. To cast and pack them in
        # every run would cost more than the layer that reads them.
        if node.op.name == "Cast" and inputs[0].dtype is DType.F16:
            return True
        size = sum(tensor.bytes for tensor in outputs)
        return size <= FOLD_LIMIT or size <= sum(tensor.bytes for tensor in inputs)

    def _fold(self, node: Node, outputs: Sequence[Tensor]) -> tuple[str, ...]:
        arrays = compute(
            node.op,
            node.attrs,
            [(self.tensors[i], self.weights[i]) if i else None for i in node.inputs],
            outputs,
        )
        return tuple(self.weight(t.name, a, t.quant) for t, a in zip(outputs, arrays, strict=False))

    def _infer_tensor(self, name: str, spec: Spec, storage: Storage | None) -> Tensor:
        """The tensor that a node computes; only real numbers have a storage of their own."""
        dtype, shape = spec[0], tuple(map(int, spec[1]))
        if storage and dtype is DType.F32:
            return self._check(Tensor(name, storage.dtype, shape, storage.quant))
        return Tensor(name, dtype, shape)

    def _check(self, tensor: Tensor) -> Tensor:
        if wrong := fault(tensor):
            raise MaceError(f"{self.name}: tensor {tensor.name!r}", wrong, "quantize the model again")
        return tensor


def rename_tensors(node: Node, names: Mapping[str, str], outputs: bool = True) -> Node:
    """Return the node with other names for its inputs and, where `outputs`, for its outputs."""
    ins = tuple(names.get(i, i) for i in node.inputs)
    outs = tuple(names.get(o, o) for o in node.outputs) if outputs else node.outputs
    # Most nodes read what they read before: `replace` would take a quarter of the time of all transforms of a
    # small graph.
    return node if (ins, outs) == (node.inputs, node.outputs) else replace(node, inputs=ins, outputs=outs)


def _stem(op: Op, outputs: Sequence[str] | int) -> str:
    """Return a name for a node that stands for no other: that of its first output, else of its op."""
    return op.name if isinstance(outputs, int) or not outputs else outputs[0]


def _free(stem: str, taken: Callable[[str], bool], numbers: dict[str, int]) -> str:
    """The stem if it is free, else with the next number.

    numbers: where to go on, so that thousands of one stem cost no search.
    """
    if not taken(stem):
        return stem
    number = numbers.get(stem, 1)
    while taken(f"{stem}.{number}"):
        number += 1
    numbers[stem] = number
    return f"{stem}.{number}"
