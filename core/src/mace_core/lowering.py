"""Lowers the nodes of a graph to kernel calls: what the lowering functions of a target write to."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from mace_core.ir import Array, DType, Graph, Node, Quant, Shape, Tensor
from mace_core.numerics import Numerics
from mace_core.program import Call, Program, Weight, find_root
from mace_core.refusal import Refusal

if TYPE_CHECKING:
    from mace_core.selection import Selection

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """A lowering cannot compute this node.

    code: one of `mace_core.refusal.CODES`.  reason: a sentence.  remedy: what the user can change; "" where
    nothing would help.
    """

    def __init__(self, reason: str, *, code: str = "other", remedy: str = "") -> None:
        super().__init__(reason)
        self.refusal = Refusal(code, reason, remedy)


class Lowering:
    """A program under construction; what a target's lowering functions write to.

    levels: names of the levels at which the calls that are appended now will be made; () for all.
    has_read_parameters: whether a lowering function has asked for `parameters`, so that its calls may depend
    on them.
    """

    def __init__(self, graph: Graph, parameters: Hashable = None) -> None:
        """parameters: what the target gives its own lowerings, see `KernelTarget.parameters`."""
        self.graph = graph
        self.calls: list[Call] = []
        # A trial lowering is made for each node of a graph, so nothing here may take time with the size of
        # the graph: a ChainMap writes to its first mapping only, and copies none.
        self.tensors: ChainMap[str, Tensor] = ChainMap({}, graph.tensors)  # type: ignore[arg-type]
        self.weights: MutableMapping[str, Weight] = {}  # those that lowerings made
        self.aliases: MutableMapping[str, str] = {}
        self.selections: list[Selection] = []
        self.levels: tuple[str, ...] = ()
        self.has_read_parameters = False
        self._parameters = parameters
        self._outputs = frozenset(graph.outputs)
        self._output_roots = set(graph.outputs)
        self._folded: MutableMapping[str, Array] = {}
        self._names_by_key: MutableMapping[Hashable, str] = {}
        self._numbers: MutableMapping[str, int] = {}
        # Of one key, shared with all forks.
        self._latest: dict[Hashable, Any] = {}

    @property
    def parameters(self) -> Hashable:
        """The target's values for its own lowerings, for the levels of the calls that are being appended."""
        self.has_read_parameters = True
        return self._parameters

    def aim(self, parameters: Hashable, levels: tuple[str, ...] = ()) -> Lowering:
        """Set what lowerings read as `parameters`, and the levels of the calls that follow.

        Returns itself.
        """
        self._parameters, self.levels, self.has_read_parameters = parameters, levels, False
        return self

    def fork(self, siblings: Sequence[Lowering] = ()) -> Lowering:
        """Return a lowering that reads this one and writes to its own layers, until `adopt` takes them over.

        siblings: forks that will be adopted together with it. It sees their names and packed weights, but not
        how they share bytes: each of them computes the same node, at other levels.
        """
        fork = copy(self)
        fork.calls, fork.selections = [], []
        fork.tensors = ChainMap({}, *(s.tensors.maps[0] for s in siblings), *self.tensors.maps)
        fork.weights = _stack_layers(self.weights, [s.weights for s in siblings])
        # Not those of siblings: each must alias the same tensors by itself, which `lower_by_choice` checks.
        fork.aliases = ChainMap({}, self.aliases)
        fork._output_roots = set(self._output_roots)
        fork._folded = _stack_layers(self._folded, [s._folded for s in siblings])
        fork._names_by_key = _stack_layers(self._names_by_key, [s._names_by_key for s in siblings])
        fork._numbers = _stack_layers(self._numbers, [s._numbers for s in siblings])
        return fork

    def adopt(self, forks: Sequence[Lowering]) -> None:
        """Take over the calls and constants of forks, which let tensors share bytes in the same way."""
        for fork in forks:
            self.calls += fork.calls
            self.selections += fork.selections
            self.tensors.update(fork.tensors.maps[0])
            self.weights.update(_newest(fork.weights))
            self.aliases.update(_newest(fork.aliases))
            self._folded.update(_newest(fork._folded))
            self._names_by_key.update(_newest(fork._names_by_key))
            self._numbers.update(_newest(fork._numbers))
            self._output_roots |= fork._output_roots

    @property
    def new_aliases(self) -> Mapping[str, str]:
        """Of a fork: the tensors that it let share the bytes of others."""
        return _newest(self.aliases)

    @property
    def numerics(self) -> Numerics:
        """The rule by which the graph's quantized nodes round."""
        return self.graph.numerics

    def shape(self, tensor: str) -> Shape:
        """Return the shape of a tensor."""
        return self.tensors[tensor].shape

    def constant(self, tensor: str) -> Array | None:
        """Return the elements of a constant, None for a tensor that is computed."""
        array = self.graph.weights.get(tensor)
        return self._folded.get(tensor) if array is None else array

    def add_folded(self, name: str, array: Array, quant: Quant | None = None) -> str:
        """Add a constant that a lowering computed, which other lowerings can read; return its name."""
        name = self._fresh(name)
        self._folded[name] = array
        self.tensors[name] = Tensor(name, DType.of(array), array.shape, quant)
        self.weights[name] = Weight.of(array)
        return name

    def weight(self, name: str, shape: Shape, dtype: str, make: Callable[[], Array]) -> str:
        """Add a constant in the arrangement of a kernel; return its name.

        dtype: numpy's name of the element type.
        make: called when the constant is written, so that only one packed array is in memory at a time.
        """
        import numpy as np

        name = self._fresh(name)
        size = int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
        self.weights[name] = Weight(shape, size, make)
        return name

    def once(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return the result of `make` for this key, which is called only once: equal weights are packed once.

        key: everything that the result depends on, including the parameters that it was made with.
        """
        # The result of a call exists only at the levels of that call, so it is filed under those levels.
        for known in (key, (key, self.levels)):
            if known in self._names_by_key:
                return self._names_by_key[known]
        calls = len(self.calls)
        name = make()
        is_computed = len(self.calls) > calls and self.levels
        self._names_by_key[(key, self.levels) if is_computed else key] = name
        return name

    def compute_once(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return what `make` computes, which is called once where the same key follows itself.

        key: everything that the result depends on; no level may be needed for it.
        The candidates of a node read the same constants one after another. Those of other nodes are not kept,
        because together they may take more memory than there is.
        """
        if key not in self._latest:
            value = make()
            self._latest.clear()
            self._latest[key] = value
        result: _Value = self._latest[key]
        return result

    def temporary(self, like: Tensor) -> str:
        """Add a tensor that lives between two calls of one node; return its name."""
        name = self._fresh(like.name)
        self.tensors[name] = replace(like, name=name)
        return name

    def may_alias(self, tensor: str, of: str) -> bool:
        """Tell whether a tensor can share the bytes of another."""
        if tensor not in self._outputs:
            return True
        root = self._root(of)
        # An output is memory of the application. It cannot be the bytes of a constant or of an input, which
        # are elsewhere, nor those of another output.
        return not (
            root in self.graph.weights
            or root in self.weights
            or root in self._output_roots
            or root in self.graph.inputs
        )

    def alias(self, tensor: str, of: str) -> None:
        """Let a tensor share the bytes of another."""
        root = self._root(of)
        self.aliases[tensor] = root
        if tensor in self._outputs:
            self._output_roots.add(root)

    def call(self, node: Node, call: Call) -> None:
        """Append a call on behalf of a node."""
        # Fields become a C struct, which would be left with members of arbitrary value.
        unknown = {name for name, _ in call.kernel.fields} ^ set(call.args)
        assert not unknown, f"{call.kernel.name}: arguments {unknown} do not match its fields"
        for name, ctype in call.kernel.fields:
            _need_room(call, name, ctype)
        named = replace(
            call, reads=tuple(call.reads), writes=tuple(call.writes), node=node.name, sources=node.sources
        )
        self.calls.append(replace(named, levels=self.levels) if self.levels else named)

    def finish(self) -> Program:
        """Return the program, with only the constants that its calls read."""
        graph = self.graph
        # A weight that was packed is stored once, in its packed form.
        reads = chain.from_iterable(call.reads for call in self.calls)
        used = {self._root(tensor) for tensor in chain(filter(None, reads), graph.outputs)}
        graph_weights = {n: Weight.of(a) for n, a in graph.weights.items() if n in used}
        weights = {**graph_weights, **{n: w for n, w in self.weights.items() if n in used}}
        constants = (graph.weights.keys() | self.weights.keys()) - set(graph.outputs)
        tensors = {n: t for n, t in self.tensors.items() if n not in constants}
        return Program(
            graph.name,
            tuple(self.calls),
            tensors,
            weights,
            self.aliases,
            graph.inputs,
            graph.outputs,
            tuple(self.selections),
        )

    def _root(self, tensor: str) -> str:
        return find_root(tensor, self.aliases)

    def _fresh(self, stem: str) -> str:
        # Continues at the last number: thousands of nodes with one stem would otherwise search for all of
        # them.
        number = self._numbers.get(stem, 0)
        name = f"{stem}.{number}" if number else stem
        while name in self.tensors or name in self.weights:
            number += 1
            name = f"{stem}.{number}"
        self._numbers[stem] = number
        return name


Lower = Callable[[Node, Lowering], None]
"""Appends the calls that compute one node; raises Refused with the reason if it cannot."""


def _need_room(call: Call, name: str, ctype: str) -> None:
    """Raise Refused for an argument that its C type cannot hold.

    A product of dimensions may exceed 32 bits although none of the dimensions does.
    """
    value = call.args[name]
    bits = {"i32": 32, "i64": 64}.get(ctype.partition("[")[0])
    if bits is None:
        return
    limit = 1 << (bits - 1)
    for number in value if isinstance(value, tuple) else (value,):
        if not -limit <= number < limit:
            reason = f"its {name} would be {number}; kernel {call.kernel.name} counts in {bits} bits"
            raise Refused(reason, code="too-large", remedy="make its tensors smaller, as with input_shapes")


def _stack_layers(
    below: Mapping[_Key, _Value], siblings: Sequence[Mapping[_Key, _Value]]
) -> ChainMap[_Key, _Value]:
    """Return a mapping that writes to a new layer above those of the siblings and the common one below."""
    return ChainMap({}, *map(_newest, siblings), below)  # type: ignore[arg-type]  # writes to the first only


def _newest(mapping: Mapping[_Key, _Value]) -> MutableMapping[_Key, _Value]:
    """Return the layer that a fork wrote."""
    assert isinstance(mapping, ChainMap), "not a fork"
    return mapping.maps[0]
