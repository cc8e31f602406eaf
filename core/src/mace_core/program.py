"""A program: the kernel calls that compute a graph, before they are written out as code or as a file."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources.abc import Traversable

from mace_core.ir import Array, DType, Graph, Node, Quant, Shape, Tensor

Arg = int | float | tuple[int, ...] | tuple[float, ...]


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """A lowering cannot compute this node; the text says why."""


@dataclass(frozen=True)
class Kernel:
    """A C function made from a template: void NAME(const mace_run *run, const NAME_args *a, void *const *t).

    name: its C name, `OP_DTYPE` or `OP_VARIANT_DTYPE`.
    template: the .c.in file; sees `name`, `isa` and everything in `params`.
    fields: what NAME_args holds, as (name, C type), the type with "[n]" for an array.
    helpers: templates of C functions that it calls, rendered once before all kernels that name them.
    """

    name: str
    template: Traversable
    fields: tuple[tuple[str, str], ...] = ()
    params: Mapping[str, object] = field(default_factory=dict, hash=False)
    helpers: tuple[Traversable, ...] = ()


@dataclass(frozen=True)
class Call:
    """One kernel at work: t[] holds the tensors read, then those written.

    scratch: bytes of working memory that each worker needs.
    inplace: whether a result may lie where an input of the same size lay that nobody reads later.
    node: the graph node, for the reader; sources: the model's own nodes, for profiling and reports.
    """

    kernel: Kernel
    args: Mapping[str, Arg]
    reads: Sequence[str]
    writes: Sequence[str]
    scratch: int = 0
    inplace: bool = False
    node: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weight:
    """A constant as the kernels want it, made when it is written out so that only one is in memory at a time."""

    shape: Shape
    bytes: int
    make: Callable[[], Array]


@dataclass(frozen=True)
class Program:
    """The calls that compute a model.

    aliases: tensor -> the tensor whose bytes it shares (a reshape costs nothing).
    """

    name: str
    calls: tuple[Call, ...]
    tensors: Mapping[str, Tensor]
    weights: Mapping[str, Weight]
    aliases: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def root(self, tensor: str) -> str:
        """The tensor that owns the bytes."""
        return find_root(tensor, self.aliases)


def find_root(tensor: str, aliases: Mapping[str, str]) -> str:
    """The tensor that owns the bytes of another."""
    while tensor in aliases:
        tensor = aliases[tensor]
    return tensor


def _as_stored(array: Array) -> Weight:
    return Weight(array.shape, array.nbytes, lambda: array)


class Lowering:
    """A program under construction; what a target's lowering functions write to."""

    def __init__(self, graph: Graph, panel: int) -> None:
        """panel: columns of a packed weight matrix that lie together (the widest tile of the ABI's kernels)."""
        self.graph = graph
        self.panel = panel
        self.calls: list[Call] = []
        # A trial lowering is made for each node of a graph, so nothing here may take time with the size of the graph.
        self.tensors: ChainMap[str, Tensor] = ChainMap({}, graph.tensors)  # type: ignore[arg-type]  # only the first is written
        self.weights: dict[str, Weight] = {}  # those that lowerings made
        self.aliases: dict[str, str] = {}
        self._outputs = frozenset(graph.outputs)
        self._output_roots = set(graph.outputs)
        self._folded: dict[str, Array] = {}
        self._made: dict[Hashable, str] = {}
        self._numbers: dict[str, int] = {}

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
        self.weights[name] = _as_stored(array)
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
        """The name that `make` gave when it was called for this key first: what several nodes pack alike is packed once."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

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
        named = replace(call, reads=tuple(call.reads), writes=tuple(call.writes), node=node.name, sources=node.sources)
        self.calls.append(named)

    def finish(self) -> Program:
        """The program, with only the constants that its calls read."""
        graph = self.graph
        used = {self._root(t) for c in self.calls for t in c.reads if t}
        stored = {n: _as_stored(a) for n, a in graph.weights.items() if n in used}
        weights = {**stored, **{n: w for n, w in self.weights.items() if n in used}}
        tensors = {n: t for n, t in self.tensors.items() if n not in graph.weights and n not in self.weights}
        return Program(graph.name, tuple(self.calls), tensors, weights, self.aliases, graph.inputs, graph.outputs)

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


def join(name: str, programs: Sequence[Program], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Program:
    """Programs that run one after another as one; what one makes for another lies in the common arena."""
    tensors: dict[str, Tensor] = {}
    weights: dict[str, Weight] = {}
    aliases: dict[str, str] = {}
    calls: list[Call] = []
    for number, program in enumerate(programs):
        clash = {n: f"{n}.r{number}" for n in program.weights if n in weights or n in tensors}
        inner = set(program.tensors) - {*program.inputs, *program.outputs}
        clash |= {n: f"{n}.r{number}" for n in inner if n in tensors or n in weights}
        weights |= {clash.get(n, n): w for n, w in program.weights.items()}
        tensors |= {clash.get(n, n): replace(t, name=clash.get(n, n)) for n, t in program.tensors.items()}
        aliases |= {clash.get(t, t): clash.get(of, of) for t, of in program.aliases.items()}
        calls += [_renamed(c, clash) for c in program.calls]
    return Program(name, tuple(calls), tensors, weights, aliases, inputs, outputs)


def _renamed(call: Call, names: Mapping[str, str]) -> Call:
    if not names:
        return call
    reads = tuple(names.get(t, t) for t in call.reads)
    return replace(call, reads=reads, writes=tuple(names.get(t, t) for t in call.writes))
