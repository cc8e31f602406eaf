"""Finds the part of a model that a deployment file asks for.

It lies between inputs with complete shapes and outputs; the walk and the checks of shapes are core's
(`mace_core.importer`). What is the format's own here: tensors are numbered, an input may be a state, and
operators that change a state are needed although no tensor leads to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from mace_core.deployment import Model, Port
from mace_core.graph_builder import NEXT
from mace_core.hints import Dim, refuse_shapes
from mace_core.importer import needed_nodes, refuse_names, shape_fault
from mace_core.ir import Shape
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo, TfliteFile
from mace_frontend_tflite.variables import READ, find_assigning_operators

EFFECTS = ("CALL_ONCE",)
"""Operators that matter although they have no result."""


@dataclass(frozen=True)
class CutOutput:
    """An output of the part that is read.

    index: the number of its tensor.  after: whether it is the value that a state has after the run.
    """

    name: str
    index: int
    after: bool = False


@dataclass(frozen=True)
class ModelCut:
    """The part of the main graph that is read: inputs with shapes, outputs, operators in the file's order."""

    graph: Subgraph
    inputs: tuple[tuple[TensorInfo, Shape], ...]
    outputs: tuple[CutOutput, ...]
    operators: tuple[Operator, ...]


def cut_model(source: TfliteFile, model: Model) -> ModelCut:
    """Return the part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be that of any tensor: the graph is cut there. MaceError for names that no tensor has, and one
    for all inputs whose shapes stay unknown or contradict the file.
    """
    graph = source.subgraphs[0]
    stated = [port.index for port in _find_ports(source, model.inputs, "input")]
    declared = [CutOutput(graph.tensors[i].name, i) for i in graph.outputs]
    outputs = _find_ports(source, model.outputs, "output") or declared
    operators, read = _find_operators(source, stated, outputs)
    # An input of the model that only the part before the cut reads is left out.
    rest = [i for i in dict.fromkeys(graph.inputs) if i not in stated and (i in read or not stated)]
    inputs = [graph.tensors[i] for i in (*stated, *rest)]
    shapes = {port.name: port.shape for port in model.inputs if port.shape is not None}
    faults = [_find_fault(info, shapes.get(info.name)) for info in inputs]
    hints = {info.name: shapes.get(info.name) or _known_dims(info) for info in inputs}
    refuse_shapes(source.file.name, filter(None, faults), hints)
    complete = tuple((info, shapes.get(info.name) or info.shape) for info in inputs)
    return ModelCut(graph, complete, tuple(outputs), tuple(operators))


def port_names(source: TfliteFile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the model's own inputs and outputs, in its order."""
    graph = source.subgraphs[0]
    inputs = dict.fromkeys(graph.inputs)
    return tuple(graph.tensors[i].name for i in inputs), tuple(graph.tensors[i].name for i in graph.outputs)


def _find_operators(
    source: TfliteFile, inputs: Collection[int], outputs: Sequence[CutOutput]
) -> tuple[list[Operator], set[int]]:
    """Return the operators of the main graph that the outputs need, and all tensors that are read.

    An operator that changes a state is needed as soon as the state is read, since the next run reads what it
    leaves, or if the state's next value is an output.
    """
    graph = source.subgraphs[0]
    changed = {output.index for output in outputs if output.after}
    results = [output.index for output in outputs if not output.after]
    effects = [o for o in graph.operators if changed & {*o.inputs, *o.outputs}]
    # An operator with an effect may read further states, whose changes are then needed too: so until nothing
    # is added.
    while True:
        operators = needed_operators(graph, inputs, results, effects)
        read = set(chain.from_iterable(operator.inputs for operator in operators)) - {-1}
        states = {i for i in read if graph.tensors[i].variable}
        changing = [o for o in graph.operators if states.intersection(o.inputs)]
        needed = [*find_assigning_operators(source, operators), *changing]
        if {operator.index for operator in needed} <= {operator.index for operator in operators}:
            return operators, read.union(results)
        effects = [*operators, *needed]


def needed_operators(
    graph: Subgraph, inputs: Collection[int], outputs: Sequence[int], effects: Collection[Operator] = ()
) -> list[Operator]:
    """Return the operators that compute the outputs from the inputs, in the order of the file.

    effects: operators that are needed for what they change.
    """
    needed = {operator.index for operator in (*effects, *_with_effects(graph))}

    # Core's walk asks for names. The negative number of an operator stands for its effect, which no tensor
    # shows.
    def writes(operator: Operator) -> Iterator[int]:
        yield from (i for i in operator.outputs if i >= 0)
        if operator.index in needed:
            yield ~operator.index

    def reads(operator: Operator) -> Iterator[int]:
        return (i for i in operator.inputs if i >= 0)

    return needed_nodes(graph.operators, [*outputs, *(~index for index in needed)], inputs, (reads, writes))


def _with_effects(graph: Subgraph) -> Iterator[Operator]:
    return (operator for operator in graph.operators if operator.code in EFFECTS)


def _find_ports(source: TfliteFile, ports: Sequence[Port], direction: str) -> list[CutOutput]:
    """Return the tensors that the deployment file names as inputs or as outputs."""
    graph = source.subgraphs[0]
    tensors = {info.name: CutOutput(info.name, info.index) for info in graph.tensors}
    if direction == "output":
        states = [info for info in graph.tensors if info.variable or _is_read_variable(graph, info.index)]
        after = {info.name + NEXT: CutOutput(info.name + NEXT, info.index, after=True) for info in states}
        tensors = after | tensors
    declared = graph.inputs if direction == "input" else graph.outputs
    missing = [port.name for port in ports if port.name not in tensors]
    refuse_names(source.file.name, direction, missing, tensors, [graph.tensors[i].name for i in declared])
    return [tensors[port.name] for port in ports]


def _is_read_variable(graph: Subgraph, index: int) -> bool:
    """Tell whether a tensor is the value of a variable."""
    producer = graph.producers.get(index)
    return producer is not None and producer.code == READ


def _known_dims(info: TensorInfo) -> tuple[Dim, ...]:
    """Return an input's dimensions, None for one that must be stated.

    The converter writes 1 for what it leaves open, which is a good size for a batch (axis 0) alone; another
    number stands where the model was resized before it was saved.
    """
    dims = info.signature or info.shape
    pairs = enumerate(zip(dims, info.shape, strict=True))
    return tuple(None if dim < 0 and axis > 0 and size <= 1 else size for axis, (dim, size) in pairs)


def _find_fault(info: TensorInfo, stated: Shape | None) -> str | None:
    """Return what is wrong with an input, with the remedy.

    None if its type and shape are known and agree with the file.
    """
    if info.dtype is None:
        problem = f"input {info.name!r} is of type {info.kind}"
        return f"{problem}; cut the graph behind it: name inner tensors under input_tensors"
    if stated is None:
        return shape_fault(info.name, _known_dims(info), None)
    # An empty shape stands for an unknown rank as well as for a scalar, so it contradicts nothing.
    dims = [dim if dim >= 0 else None for dim in info.signature or info.shape]
    return shape_fault(info.name, dims or None, stated, free=(0,))
