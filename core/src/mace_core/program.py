"""A program: the kernel calls that compute a graph, before they are written out as code or as a file."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from mace_core.emit.text import CIdentifier, is_identifier, shown
from mace_core.errors import PluginError
from mace_core.ir import Array, DType, Graph, Node, Quant, Shape, Tensor
from mace_core.refusal import Refusal

if TYPE_CHECKING:
    from mace_core.candidates import Selection

FIELD_TYPES: Mapping[str, str] = MappingProxyType(
    {
        **{short: c_type for c_type, short in (("int32_t", "i32"), ("int64_t", "i64"), ("float", "f32"), ("double", "f64"))},
        **{c_type: c_type for c_type in ("int32_t", "int64_t", "float", "double", "char")},
    }
)
"""What a kernel's field may be, in the IR's words or in those of C -> the type in C."""

Arg = int | float | tuple[int, ...] | tuple[float, ...]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """A lowering cannot compute this node.

    code: one of `mace_core.refusal.CODES`.  reason: a sentence.  remedy: what the user can change; "" where nothing would help.
    """

    def __init__(self, reason: str, *, code: str = "other", remedy: str = "") -> None:
        super().__init__(reason)
        self.refusal = Refusal(code, reason, remedy)


@dataclass(frozen=True)
class Kernel:
    """A C function made from a template: void NAME(const mace_workers *run, const NAME_args *a, void *const *t).

    name: its C name, `OP_DTYPE` or `OP_VARIANT_DTYPE`.
    template: the .c.in file; sees `name`, `level` and everything in `params`; text that it prints has a type of `mace_core.emit.text`.
    fields: what NAME_args holds, as (name, type of FIELD_TYPES), the type with "[n]" for an array.
    helpers: templates of C functions that it calls, rendered once before all kernels that name them.

    PluginError where a name or a type is none in C.
    """

    name: str
    template: Traversable
    fields: tuple[tuple[str, str], ...] = ()
    params: Mapping[str, object] = field(default_factory=dict, hash=False)
    helpers: tuple[Traversable, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", CIdentifier(self.name))
        for name, kind in self.fields:
            base, bracket, count = kind.partition("[")
            if not is_identifier(name) or base not in FIELD_TYPES or (bracket and not re.fullmatch(r"[1-9][0-9]*\]", count)):
                remedy = f"the types are {', '.join(FIELD_TYPES)}, of an array with its length such as i32[4]"
                raise PluginError(f"kernel {self.name!r}", f"field {shown(name)} of type {shown(kind)} cannot be declared in C", remedy)


@dataclass(frozen=True)
class Call:
    """One kernel at work: t[] holds the tensors read, then those written.

    scratch: bytes of working memory that each worker needs.
    inplace: whether a result may lie where an input of the same size lay that nobody reads later.
    node: the graph node, for the reader; sources: the model's own nodes, for profiling and reports.
    levels: names of the only instruction-set levels at which the call is made; () for all. Of the calls that compute one node at
        several levels, each level makes its own, and they write the same result.
    """

    kernel: Kernel
    args: Mapping[str, Arg]
    reads: Sequence[str]
    writes: Sequence[str]
    scratch: int = 0
    inplace: bool = False
    node: str = ""
    sources: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    def is_made_at(self, level: str) -> bool:
        """Tell whether the call is made at a level."""
        return not self.levels or level in self.levels


@dataclass(frozen=True)
class Weight:
    """A constant as the kernels want it, made when it is written out so that only one is in memory at a time."""

    shape: Shape
    bytes: int
    make: Callable[[], Array]

    @classmethod
    def of(cls, array: Array) -> Weight:
        """Describe an array that is stored as it is."""
        return cls(array.shape, array.nbytes, lambda: array)


@dataclass(frozen=True)
class Program:
    """The calls that compute a model.

    aliases: tensor -> the tensor whose bytes it shares (a reshape costs nothing).
    selections: what was chosen for each node that several candidates could compute.
    """

    name: str
    calls: tuple[Call, ...]
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, Weight]
    aliases: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    selections: tuple[Selection, ...] = ()

    def root(self, tensor: str) -> str:
        """The tensor that owns the bytes."""
        return find_root(tensor, self.aliases)

    def restrict(self, levels: Sequence[str]) -> Program:
        """Return the program of a library that holds these levels only: without the calls that none of them makes."""
        calls = []
        for call in self.calls:
            makers = tuple(level for level in levels if call.is_made_at(level))
            if makers:
                calls.append(replace(call, levels=() if len(makers) == len(levels) else makers))
        return replace(self, calls=tuple(calls))


def find_root(tensor: str, aliases: Mapping[str, str]) -> str:
    """The tensor that owns the bytes of another."""
    while tensor in aliases:
        tensor = aliases[tensor]
    return tensor


def _need_room(call: Call, name: str, ctype: str) -> None:
    """Refused for an argument that does not fit into its field: products of dimensions may exceed 32 bits where none of them does."""
    value = call.args[name]
    bits = {"i32": 32, "i64": 64}.get(ctype.partition("[")[0])
    if bits is None:
        return
    limit = 1 << (bits - 1)
    for number in value if isinstance(value, tuple) else (value,):
        if not -limit <= number < limit:
            reason = f"its {name} would be {number}; kernel {call.kernel.name} counts in {bits} bits"
            raise Refused(reason, code="too-large", remedy="make its tensors smaller, as with input_shapes")


class Lowering:
    """A program under construction; what a target's lowering functions write to.

    levels: names of the levels at which the calls that are appended now will be made; () for all.
    has_read_parameters: whether a lowering function has asked for `parameters`, so that its calls may depend on them.
    """

    def __init__(self, graph: Graph, parameters: Hashable = None) -> None:
        """parameters: what the target gives its own lowerings, see `KernelTarget.parameters`."""
        self.graph = graph
        self.calls: list[Call] = []
        # A trial lowering is made for each node of a graph, so nothing here may take time with the size of the graph.
        self.tensors: ChainMap[str, Tensor] = ChainMap({}, graph.tensors)  # type: ignore[arg-type]  # only the first is written
        self.weights: MutableMapping[str, Weight] = {}  # those that lowerings made
        self.aliases: MutableMapping[str, str] = {}
        self.selections: list[Selection] = []
        self.levels: tuple[str, ...] = ()
        self.has_read_parameters = False
        self._parameters = parameters
        self._outputs = frozenset(graph.outputs)
        self._output_roots = set(graph.outputs)
        self._folded: MutableMapping[str, Array] = {}
        self._made: MutableMapping[Hashable, str] = {}
        self._numbers: MutableMapping[str, int] = {}

    @property
    def parameters(self) -> Hashable:
        """What the target gives its own lowerings, for the levels that calls are appended for now."""
        self.has_read_parameters = True
        return self._parameters

    def aim(self, parameters: Hashable, levels: tuple[str, ...] = ()) -> Lowering:
        """Set what lowerings read as `parameters`, and the levels of the calls that follow; returns itself."""
        self._parameters, self.levels, self.has_read_parameters = parameters, levels, False
        return self

    def fork(self, siblings: Sequence[Lowering] = ()) -> Lowering:
        """Return a lowering that sees this one and writes to layers of its own: calls that `adopt` takes over, or nobody does.

        siblings: forks that will be adopted together with it. It sees what they named and packed, and not how they share bytes:
        each of them computes the same node, at other levels.
        """
        fork = copy(self)
        fork.calls, fork.selections = [], []
        fork.tensors = ChainMap({}, *(s.tensors.maps[0] for s in siblings), *self.tensors.maps)
        fork.weights = _layered(self.weights, [s.weights for s in siblings])
        fork.aliases = ChainMap({}, self.aliases)
        fork._output_roots = set(self._output_roots)
        fork._folded = _layered(self._folded, [s._folded for s in siblings])
        fork._made = _layered(self._made, [s._made for s in siblings])
        fork._numbers = _layered(self._numbers, [s._numbers for s in siblings])
        return fork

    def adopt(self, forks: Sequence[Lowering]) -> None:
        """Take over what forks of this lowering made, one after another; they share bytes in the same way."""
        for fork in forks:
            self.calls += fork.calls
            self.selections += fork.selections
            self.tensors.update(fork.tensors.maps[0])
            self.weights.update(_newest(fork.weights))
            self.aliases.update(_newest(fork.aliases))
            self._folded.update(_newest(fork._folded))
            self._made.update(_newest(fork._made))
            self._numbers.update(_newest(fork._numbers))
            self._output_roots |= fork._output_roots

    @property
    def new_aliases(self) -> Mapping[str, str]:
        """Of a fork: the tensors that it let share the bytes of others."""
        return _newest(self.aliases)

    def shape(self, tensor: str) -> Shape:
        """A tensor's shape."""
        return self.tensors[tensor].shape

    def constant(self, tensor: str) -> Array | None:
        """The elements of a constant."""
        array = self.graph.weights.get(tensor)
        return self._folded.get(tensor) if array is None else array

    def folded(self, name: str, array: Array, quant: Quant | None = None) -> str:
        """A constant that a lowering computed, for other lowerings to read. Returns its name."""
        name = self._fresh(name)
        self._folded[name] = array
        self.tensors[name] = Tensor(name, DType.of(array), array.shape, quant)
        self.weights[name] = Weight.of(array)
        return name

    def weight(self, name: str, shape: Shape, dtype: str, make: Callable[[], Array]) -> str:
        """A constant in a kernel's own arrangement; `make` runs when it is written. Returns its name.

        dtype: numpy's name of the element type.
        """
        import numpy as np

        name = self._fresh(name)
        size = int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
        self.weights[name] = Weight(shape, size, make)
        return name

    def once(self, key: Hashable, make: Callable[[], str]) -> str:
        """The name that `make` gave when it was called for this key first: what several nodes pack alike is packed once.

        key: says all that the result depends on, those of `parameters` included that it was made with.
        """
        # What a call writes is there at the levels of that call only, so it is found again by those levels.
        for known in (key, (key, self.levels)):
            if known in self._made:
                return self._made[known]
        calls = len(self.calls)
        name = make()
        is_computed = len(self.calls) > calls and self.levels
        self._made[(key, self.levels) if is_computed else key] = name
        return name

    def temporary(self, like: Tensor) -> str:
        """A tensor that lives between two calls of one node. Returns its name."""
        name = self._fresh(like.name)
        self.tensors[name] = replace(like, name=name)
        return name

    def may_alias(self, tensor: str, of: str) -> bool:
        """Whether a tensor can share the bytes of another: an output of the model needs bytes that are its own."""
        if tensor not in self._outputs:
            return True
        root = self._root(of)
        return not (root in self.graph.weights or root in self.weights or root in self._output_roots or root in self.graph.inputs)

    def alias(self, tensor: str, of: str) -> None:
        """Let a tensor share the bytes of another."""
        root = self._root(of)
        self.aliases[tensor] = root
        if tensor in self._outputs:
            self._output_roots.add(root)

    def call(self, node: Node, call: Call) -> None:
        """Append a call on behalf of a node."""
        unknown = {name for name, _ in call.kernel.fields} ^ set(call.args)
        assert not unknown, f"{call.kernel.name}: arguments {unknown} do not match its fields"
        for name, ctype in call.kernel.fields:
            _need_room(call, name, ctype)
        named = replace(call, reads=tuple(call.reads), writes=tuple(call.writes), node=node.name, sources=node.sources)
        self.calls.append(replace(named, levels=self.levels) if self.levels else named)

    def finish(self) -> Program:
        """The program, with only the constants that its calls read."""
        graph = self.graph
        used = {self._root(t) for c in self.calls for t in c.reads if t} | set(map(self._root, graph.outputs))
        stored = {n: Weight.of(a) for n, a in graph.weights.items() if n in used}
        weights = {**stored, **{n: w for n, w in self.weights.items() if n in used}}
        constants = (graph.weights.keys() | self.weights.keys()) - set(graph.outputs)
        tensors = {n: t for n, t in self.tensors.items() if n not in constants}
        return Program(graph.name, tuple(self.calls), tensors, weights, self.aliases, graph.inputs, graph.outputs, tuple(self.selections))

    def _root(self, tensor: str) -> str:
        return find_root(tensor, self.aliases)

    def _fresh(self, stem: str) -> str:
        number = self._numbers.get(stem, 0)
        name = f"{stem}.{number}" if number else stem
        while name in self.tensors or name in self.weights:
            number += 1
            name = f"{stem}.{number}"
        self._numbers[stem] = number
        return name


def rename_apart(graph: Graph, programs: Sequence[Program]) -> list[Program]:
    """Return the programs of a graph's regions with names of weights and inner tensors that no two of them share.

    What a region reads and writes keeps its name: by that name the regions hand it on.
    """
    taken = {*graph.inputs, *graph.outputs}
    renamed = []
    for number, program in enumerate(programs):
        inner = set(program.tensors) - {*program.inputs, *program.outputs}
        clash = {name: f"{name}.r{number}" for name in (*program.weights, *inner) if name in taken}
        program = _renamed(program, clash)
        taken |= {*program.tensors, *program.weights}
        renamed.append(program)
    return renamed


def _layered(below: Mapping[_Key, _Value], siblings: Sequence[Mapping[_Key, _Value]]) -> ChainMap[_Key, _Value]:
    """Return a mapping that writes to a layer of its own, above those that siblings wrote and what lies below all of them."""
    return ChainMap({}, *map(_newest, siblings), below)  # type: ignore[arg-type]  # only the first is written


def _newest(mapping: Mapping[_Key, _Value]) -> MutableMapping[_Key, _Value]:
    """Return the layer that a fork wrote."""
    assert isinstance(mapping, ChainMap), "not a fork"
    return mapping.maps[0]


def join(graph: Graph, programs: Sequence[Program]) -> Program:
    """Join the programs of a graph's regions, which run one after another and share no name but those of what they hand on.

    Inputs and outputs that no region reads or writes (an output may be an input or a constant) are described all the same.
    """
    tensors = {name: graph.tensors[name] for name in (*graph.inputs, *graph.outputs)}
    weights = {name: Weight.of(graph.weights[name]) for name in graph.outputs if name in graph.weights}
    aliases: dict[str, str] = {}
    calls: list[Call] = []
    for program in programs:
        weights |= program.weights
        tensors |= program.tensors
        aliases |= program.aliases
        calls += program.calls
    selections = tuple(selection for program in programs for selection in program.selections)
    return Program(graph.name, tuple(calls), tensors, weights, aliases, graph.inputs, graph.outputs, selections)


def _renamed(program: Program, names: Mapping[str, str]) -> Program:
    """Return the program with other names for some of its tensors and weights."""
    if not names:
        return program

    def new(name: str) -> str:
        return names.get(name, name)

    calls = [replace(c, reads=tuple(map(new, c.reads)), writes=tuple(map(new, c.writes))) for c in program.calls]
    return replace(
        program,
        calls=tuple(calls),
        tensors={new(name): replace(tensor, name=new(name)) for name, tensor in program.tensors.items()},
        weights={new(name): weight for name, weight in program.weights.items()},
        aliases={new(name): new(of) for name, of in program.aliases.items()},
    )
