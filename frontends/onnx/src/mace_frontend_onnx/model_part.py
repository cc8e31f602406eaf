"""Selects the part of a model that is read: between the inputs and outputs that the deployment file names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from onnx import GraphProto, NodeProto

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.hints import lines
from mace_core.importer import needed_nodes, refuse_names
from mace_core.ir import Array, DType
from mace_frontend_onnx.input_shapes import PartInput, complete_inputs
from mace_frontend_onnx.input_values import fixed_values
from mace_frontend_onnx.model_file import OnnxFile, graphs_of

NumberedNode = tuple[int, NodeProto]
"""A node of the main graph with its position in the file, which names it where the file does not."""


@dataclass(frozen=True)
class ModelPart:
    """The part of a model that is read, its nodes in the order of the file.

    notes: decisions made for the user, each with the lines of a deployment file that decide otherwise.
    index_outputs: outputs that the deployment file states as integers; they may be indices of strings.
    fixed: inputs of the file that always have these values, and are no inputs of the graph.
    certain: positions of the nodes that are read whichever branch an If takes.
    """

    inputs: tuple[PartInput, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NumberedNode, ...]
    notes: tuple[str, ...] = ()
    index_outputs: frozenset[str] = frozenset()
    fixed: Mapping[str, Array] = field(default_factory=dict)
    certain: frozenset[int] = frozenset()


def select_part(file: OnnxFile, model: Model) -> ModelPart:
    """Return the part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be that of any tensor: the graph is cut there. Raises MaceError for names that no tensor has,
    and one for all dimensions of inputs that stay unknown.
    """
    graph = file.model.graph
    _refuse_unknown_names(file, model)
    stated = [port.name for port in model.inputs]
    outputs, output_notes = _select_outputs(file, model)
    nodes = _find_needed(graph, outputs, stated)
    certain = _find_needed(graph, outputs, stated, with_branches=False)
    fixed = fixed_values(file, model)
    read = names_read([node for _, node in nodes], outputs)
    others = [name for name in file.inputs if name not in (*stated, *fixed)]
    names = [*stated, *(name for name in others if name in read or not stated)]
    inputs, input_notes = complete_inputs(file, names, model.inputs)
    typed = [port for port in model.outputs if port.dtype and not port.dtype.is_float]
    return ModelPart(
        inputs,
        outputs,
        nodes,
        (*input_notes, *output_notes),
        frozenset(port.name for port in typed if port.dtype is not DType.BOOL),
        fixed,
        frozenset(position for position, _ in certain),
    )


def _refuse_unknown_names(file: OnnxFile, model: Model) -> None:
    graph = file.model.graph
    inputs, constants = file.inputs, sorted(file.initializers)
    inner = list(filter(None, chain.from_iterable(node.output for node in graph.node)))
    for direction, ports, known, listed in (
        ("input", model.inputs, [*inputs, *constants, *inner], graph.input),
        ("output", model.outputs, [*inner, *inputs, *constants], graph.output),
    ):
        missing = [port.name for port in ports if port.name not in known]
        refuse_names(file.name, direction, missing, known, [value.name for value in listed])


def _find_needed(
    graph: GraphProto, outputs: Iterable[str], cuts: Collection[str], with_branches: bool = True
) -> tuple[NumberedNode, ...]:
    """Return the nodes that compute the outputs from the tensors at which the graph is cut.

    with_branches: whether what the branches of an If read is needed.
    """
    numbered = list(enumerate(graph.node))

    def reads(item: NumberedNode) -> Iterator[str]:
        return names_of_inputs(item[1], with_branches)

    return tuple(needed_nodes(numbered, outputs, cuts, (reads, lambda item: item[1].output)))


def names_read(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> frozenset[str]:
    """Return the names of the tensors that nodes read, and of the outputs."""
    names = set(outputs)
    for node in nodes:
        names.update(names_of_inputs(node))
    return frozenset(names)


def names_of_inputs(node: NodeProto, with_branches: bool = True, taken_branch: str = "") -> Iterator[str]:
    """Yield the names of the tensors that a node reads, also of those that its subgraphs take from around it.

    with_branches: whether to look into the branches of an If.
    taken_branch: the attribute with the only branch that counts; "" if all count.
    """
    yield from filter(None, node.input)
    if node.op_type == "If" and not with_branches:
        return
    for attribute in node.attribute:
        if taken_branch and attribute.name != taken_branch:
            continue
        for graph in graphs_of(attribute):
            yield from _names_from_around(graph)


def _names_from_around(graph: GraphProto) -> Iterator[str]:
    """Yield the names that a subgraph reads and does not define itself."""
    defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        defined.update(node.output)
    for node in graph.node:
        yield from (name for name in names_of_inputs(node) if name not in defined)
    yield from (value.name for value in graph.output if value.name not in defined)


def _select_outputs(file: OnnxFile, model: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the outputs, and notes on those that are sequences.

    A sequence that the model puts together at its end is replaced by the tensors in it, because a library
    gives tensors only.
    """
    sequences = output_sequences(file.model.graph)
    listed = tuple(port.name for port in model.outputs)
    if listed:
        faults = [
            f"{file.name}: output {name!r} is a sequence; name the tensors in it:"
            f"{lines('output', sequences[name])}"
            for name in listed
            if name in sequences
        ]
        if faults:
            raise MaceError.of(faults)
        return listed, ()
    names: list[str] = []
    notes: list[str] = []
    for name in file.outputs:
        elements = sequences.get(name)
        names.extend(elements or (name,))
        if elements:
            text = f"output {name!r} is a sequence; its tensors are outputs: {', '.join(elements)}"
            notes.append(f"{file.name}: {text}")
    return tuple(names), tuple(notes)


def output_sequences(graph: GraphProto) -> dict[str, tuple[str, ...]]:
    """Return the outputs of a graph that are sequences, with the names of the tensors in each."""
    outputs = {value.name for value in graph.output}
    nodes = [node for node in graph.node if node.op_type == "SequenceConstruct" and node.output]
    return {node.output[0]: tuple(node.input) for node in nodes if node.output[0] in outputs}
