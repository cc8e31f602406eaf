"""Which part of a model is wanted: its inputs with complete shapes, its outputs, and the operators between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mace_core.deployment import Model, Port
from mace_core.graph_builder import NEXT
from mace_core.hints import Dim, refuse_shapes
from mace_core.importer import refuse_names
from mace_core.ir import Shape
from mace_frontend_tflite.source import Operator, Source, Subgraph, TensorInfo
from mace_frontend_tflite.variables import READ, assigning

EFFECTS = ("CALL_ONCE",)
"""Operators that matter without a result."""


@dataclass(frozen=True)
class Output:
    """An output of the wanted part: a tensor, or what a state is after the run."""

    name: str
    index: int
    after: bool = False


@dataclass(frozen=True)
class Part:
    """The wanted part of a graph: its inputs with their shapes, outputs, operators in the order of the file."""

    graph: Subgraph
    inputs: tuple[tuple[TensorInfo, Shape], ...]
    outputs: tuple[Output, ...]
    operators: tuple[Operator, ...]


def wanted(source: Source, model: Model) -> Part:
    """The part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be that of any tensor: the graph is cut there. MaceError for names that no tensor has, and one
    for all inputs whose shapes stay unknown or contradict the file.
    """
    graph = source.subgraphs[0]
    stated = [o.index for o in _named(source, model.inputs, "input")]
    own = [Output(graph.tensors[i].name, i) for i in graph.outputs]
    outputs = _named(source, model.outputs, "output") or own
    operators, read = _needed(source, stated, outputs)
    rest = [i for i in dict.fromkeys(graph.inputs) if i not in stated and (i in read or not stated)]
    shapes = {p.name: p.shape for p in model.inputs if p.shape is not None}
    inputs = [graph.tensors[i] for i in (*stated, *rest)]
    faults = [fault for info in inputs if (fault := _fault(info, shapes.get(info.name)))]
    refuse_shapes(
        source.file.name, faults, {info.name: shapes.get(info.name) or _known(info) for info in inputs}
    )
    complete = tuple((info, shapes.get(info.name) or info.shape) for info in inputs)
    return Part(graph, complete, tuple(outputs), tuple(operators))


def declared(source: Source) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the model's own inputs and outputs, in its order."""
    graph = source.subgraphs[0]
    inputs = dict.fromkeys(graph.inputs)
    return tuple(graph.tensors[i].name for i in inputs), tuple(graph.tensors[i].name for i in graph.outputs)


def _needed(
    source: Source, inputs: Collection[int], outputs: Sequence[Output]
) -> tuple[list[Operator], set[int]]:
    """Return the operators of the main graph that the outputs of this run or of a later one need, and all tensors that are read.

    What an operator does to a state is needed as soon as the state is read, or its next value is an output.
    """
    graph = source.subgraphs[0]
    changed = {o.index for o in outputs if o.after}
    ends = [o.index for o in outputs if not o.after]
    effects = [o for o in graph.operators if changed.intersection(o.inputs)]
    effects += [maker for i in changed if (maker := graph.makers.get(i)) is not None]
    while True:
        operators, read = between(graph, inputs, ends, effects)
        states = {i for o in operators for i in o.inputs if i >= 0 and graph.tensors[i].variable}
        more = [*assigning(source, operators), *(o for o in graph.operators if states.intersection(o.inputs))]
        if {o.index for o in more} <= {o.index for o in operators}:
            return operators, read
        effects = [*operators, *more]


def between(
    graph: Subgraph, inputs: Collection[int], outputs: Sequence[int], effects: Sequence[Operator] = ()
) -> tuple[list[Operator], set[int]]:
    """The operators that compute the outputs from the inputs, in the order of the file, and all tensors that are read.

    effects: operators that are wanted for what they do.
    """
    found = {o.index: o for o in (*(o for o in graph.operators if o.code in EFFECTS), *effects)}
    outputs = [*outputs, *(i for operator in effects for i in operator.inputs)]
    open_ends, read = [*outputs], set[int]()
    while open_ends:
        index = open_ends.pop()
        if index in read or index < 0:
            continue
        read.add(index)
        maker = graph.makers.get(index)
        if maker and index not in inputs and maker.index not in found:
            found[maker.index] = maker
            open_ends.extend(maker.inputs)
    return [found[i] for i in sorted(found)], read


def _named(source: Source, ports: Sequence[Port], what: str) -> list[Output]:
    """The tensors that the deployment file names."""
    graph = source.subgraphs[0]
    places = {t.name: Output(t.name, t.index) for t in graph.tensors}
    if what == "output":
        after = [
            Output(t.name + NEXT, t.index, after=True)
            for t in graph.tensors
            if t.variable or _is_read(graph, t.index)
        ]
        places = {**{o.name: o for o in after}, **places}
    own = [graph.tensors[i].name for i in (graph.inputs if what == "input" else graph.outputs)]
    refuse_names(source.file.name, what, [p.name for p in ports if p.name not in places], places, own)
    return [places[p.name] for p in ports]


def _is_read(graph: Subgraph, index: int) -> bool:
    """Tell whether a tensor is what a variable holds."""
    maker = graph.makers.get(index)
    return maker is not None and maker.code == READ


def _known(info: TensorInfo) -> tuple[Dim, ...]:
    """An input's dimensions.

    None for one that the file leaves open, unless it is the batch or was resized to some number.
    """
    dims = info.signature or info.shape
    pairs = enumerate(zip(dims, info.shape, strict=True))
    return tuple(None if d < 0 and i > 0 and held <= 1 else held for i, (d, held) in pairs)


def _fault(info: TensorInfo, shape: Shape | None) -> str | None:
    """What is wrong with an input, with the remedy.

    None if its type and shape are known and agree with the file.
    """
    if info.dtype is None:
        return f"input {info.name!r} is of type {info.kind}; cut the graph behind it: name inner tensors under input_tensors"
    dims = info.signature or info.shape
    if shape is None:
        left = [str(i) for i, d in enumerate(_known(info)) if d is None]
        return f"input {info.name!r} leaves dimension {', '.join(left)} open" if left else None
    free = [i == 0 or d < 0 for i, d in enumerate(dims)]
    if not dims or (
        len(shape) == len(dims) and all(f or d == n for f, d, n in zip(free, dims, shape, strict=True))
    ):
        return None
    known = ",".join("?" if d < 0 else str(d) for d in dims)
    remedy = "state that shape, or the order of its axes: input_data_formats: NHWC, NCHW or NONE"
    return f"input {info.name!r} has shape [{known}] in the model, {list(shape)} in the deployment file; {remedy}"
