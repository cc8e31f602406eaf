"""A program: the kernel calls that compute a graph, before they are written out as code or as a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources.abc import Traversable
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

from mace_core.emit.text import CIdentifier, is_identifier, quote_name
from mace_core.errors import PluginError
from mace_core.ir import Array, Graph, Shape, Tensor

if TYPE_CHECKING:
    from mace_core.selection import Selection

FIELD_TYPES: Mapping[str, str] = MappingProxyType(
    {
        **{
            short: c_type
            for c_type, short in (("int32_t", "i32"), ("int64_t", "i64"), ("float", "f32"), ("double", "f64"))
        },
        **{c_type: c_type for c_type in ("int32_t", "int64_t", "float", "double", "char")},
    }
)
"""Types of a kernel's fields, in the words of the IR or of C -> the type in C."""

Arg = int | float | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True)
class Kernel:
    """A C function made from a template: void NAME(const mace_workers *, const NAME_args *, void *const *t).

    name: its C name, `OP_DTYPE` or `OP_VARIANT_DTYPE`.
    template: the .c.in file; sees `name`, `level` and everything in `params`; text that it prints has a type
    of `mace_core.emit.text`.
    fields: what NAME_args holds, as (name, type of FIELD_TYPES), the type with "[n]" for an array.
    helpers: templates of C functions that it calls, rendered once before all kernels that name them.

    Raises PluginError if a name or a type is invalid in C.
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
            if (
                not is_identifier(name)
                or base not in FIELD_TYPES
                or (bracket and not re.fullmatch(r"[1-9][0-9]*\]", count))
            ):
                remedy = f"the types are {', '.join(FIELD_TYPES)}, of an array with its length such as i32[4]"
                raise PluginError(
                    f"kernel {self.name!r}",
                    f"field {quote_name(name)} of type {quote_name(kind)} cannot be declared in C",
                    remedy,
                )


@dataclass(frozen=True)
class Call:
    """One kernel at work: t[] holds the tensors read, then those written.

    scratch: bytes of working memory that each worker needs.
    inplace: whether the output may reuse the buffer of a dead input of the same size.
    node: the graph node, for the reader; sources: the model's own nodes, for profiling and reports.
    levels: names of the only instruction-set levels at which the call is made; () for all. Of the calls that
        compute one node at several levels, each level makes its own, and they write the same result.
    proof: what was proven of the call's numbers, for readers of generated code and reports; "" for nothing.
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
    proof: str = ""

    def is_made_at(self, level: str) -> bool:
        """Tell whether the call is made at a level."""
        return not self.levels or level in self.levels


@dataclass(frozen=True)
class Weight:
    """A constant in the form that kernels read, made when it is written so that only one is in memory."""

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
        """Return the tensor that owns the bytes of another."""
        return find_root(tensor, self.aliases)

    def restrict(self, levels: Sequence[str]) -> Program:
        """Return the program without the calls that none of these levels makes."""
        calls = []
        for call in self.calls:
            levels_of_call = tuple(level for level in levels if call.is_made_at(level))
            if levels_of_call:
                calls.append(
                    replace(call, levels=() if len(levels_of_call) == len(levels) else levels_of_call)
                )
        return replace(self, calls=tuple(calls))


def find_root(tensor: str, aliases: Mapping[str, str]) -> str:
    """Return the tensor that owns the bytes of another."""
    while tensor in aliases:
        tensor = aliases[tensor]
    return tensor


def rename_apart(graph: Graph, programs: Sequence[Program]) -> list[Program]:
    """Rename weights and inner tensors of the programs of a graph's regions, so that no two share a name.

    What a region reads and writes keeps its name: by that name the regions hand it on.
    """
    taken = {*graph.inputs, *graph.outputs}
    renamed = []
    for number, program in enumerate(programs):
        inner = set(program.tensors) - {*program.inputs, *program.outputs}
        clash = {name: f"{name}.r{number}" for name in (*program.weights, *inner) if name in taken}
        program = _rename(program, clash)
        taken |= {*program.tensors, *program.weights}
        renamed.append(program)
    return renamed


def join(graph: Graph, programs: Sequence[Program]) -> Program:
    """Join the programs of a graph's regions, which run one after another and share tensors by name.

    Inputs and outputs that no region reads or writes are described as well: an output may be an input or a
    constant.
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
    selections = tuple(chain.from_iterable(program.selections for program in programs))
    return Program(
        graph.name, tuple(calls), tensors, weights, aliases, graph.inputs, graph.outputs, selections
    )


def _rename(program: Program, names: Mapping[str, str]) -> Program:
    """Return the program with other names for some of its tensors and weights."""
    if not names:
        return program

    def rename(name: str) -> str:
        return names.get(name, name)

    calls = [
        replace(c, reads=tuple(map(rename, c.reads)), writes=tuple(map(rename, c.writes)))
        for c in program.calls
    ]
    return replace(
        program,
        calls=tuple(calls),
        tensors={
            rename(name): replace(tensor, name=rename(name)) for name, tensor in program.tensors.items()
        },
        weights={rename(name): weight for name, weight in program.weights.items()},
        aliases={rename(name): rename(of) for name, of in program.aliases.items()},
    )
