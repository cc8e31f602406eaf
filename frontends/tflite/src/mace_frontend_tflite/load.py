"""A TensorFlow Lite file as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from mace_core.api import Files
from mace_core.build import Builder
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_tflite.source import Operator, Source, Subgraph, read
from mace_frontend_tflite.translate import Translation


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault of the file: what is damaged, or each node that the IR cannot represent.
    """
    if len(files) != 1:
        raise MaceError(model.name, f"a TensorFlow Lite model is one file, {len(files)} are named", "name the .tflite file alone")
    source = read(files[0])
    graph = source.subgraphs[0]
    inputs = _named(source, graph, model.inputs, graph.inputs, "input")
    outputs = _named(source, graph, model.outputs, graph.outputs, "output")
    nodes = needed(graph, inputs, outputs)
    translation = Translation(source, Builder(model.name, {**core_ops(), **ops}))
    translation.refuse_unknown(nodes)
    shapes = {p.name: p.shape for p in model.inputs if p.shape is not None}
    held = {}
    for index in inputs:
        info = graph.tensors[index]
        if info.dtype is None:
            raise MaceError(source.file.name, f"input {info.name!r} is of a type that is not supported", "cut the graph after it")
        held[index] = translation.builder.input(info.name, info.dtype, shapes.get(info.name, info.shape), info.quant)
    made = translation.run(graph, nodes, held, outputs)
    return translation.builder.finish(made, [graph.tensors[i].name for i in outputs])


def needed(graph: Subgraph, inputs: Sequence[int], outputs: Sequence[int]) -> list[Operator]:
    """The operators that compute the outputs from the inputs, in the order of the file."""
    makers = {o: operator for operator in graph.operators for o in operator.outputs}
    found: dict[int, Operator] = {}
    wanted, seen = [*outputs], set(inputs)
    while wanted:
        index = wanted.pop()
        if index in seen or index < 0:
            continue
        seen.add(index)
        if operator := makers.get(index):
            found[operator.index] = operator
            wanted.extend(operator.inputs)
    return [found[i] for i in sorted(found)]


def _named(source: Source, graph: Subgraph, ports: Sequence[Port], declared: Sequence[int], what: str) -> list[int]:
    """The tensors that the deployment file names, else those that the model declares."""
    if not ports:
        return list(declared)
    places = {t.name: t.index for t in graph.tensors}
    faults = []
    for port in ports:
        if port.name not in places:
            close = get_close_matches(port.name, places, 1)
            names = ", ".join(graph.tensors[i].name for i in declared)
            remedy = f"did you mean {close[0]!r}?" if close else f"the model's {what}s are {names}"
            faults.append(f"{source.file.name}: no tensor {port.name!r} for the deployment file's {what}; {remedy}")
    if faults:
        raise MaceError.of(faults)
    found = [places[p.name] for p in ports]
    return found if what == "output" else [*found, *(i for i in declared if i not in found)]
