"""Which part of a model is wanted: its inputs with complete shapes, its outputs, and the nodes between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType, Shape
from mace_core.translation import refuse_names
from mace_frontend_onnx.source import Source, branches, element_type, first_line

Dim = int | str | None
"""A dimension of the file: a number, a symbol, or nothing."""


@dataclass(frozen=True)
class Input:
    """An input of the wanted part."""

    name: str
    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class Part:
    """The wanted part of a model; `nodes` with their positions in the file, in order."""

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    nodes: tuple[tuple[int, NodeProto], ...]


def wanted(source: Source, model: Model) -> Part:
    """The part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be that of any tensor: the graph is cut there. MaceError for a name that no tensor has, and one for all
    dimensions that stay unknown.
    """
    graph = source.model.graph
    held = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    own = [i.name for i in graph.input if i.name not in held]
    made = [o for node in graph.node for o in node.output if o]
    for what, ports, known in (("input", model.inputs, [*own, *held, *made]), ("output", model.outputs, [*made, *own, *held])):
        refuse_names(source.file.name, what, [p.name for p in ports if p.name not in known], known, _declared(source, what))
    stated = [p.name for p in model.inputs]
    outputs = tuple(p.name for p in model.outputs) or tuple(o.name for o in graph.output)
    nodes, read = _between(graph, stated, outputs)
    names = [*stated, *(name for name in own if name not in stated and (name in read or not stated))]
    return Part(_inputs(source, names, model.inputs), outputs, nodes)


def reads(node: NodeProto) -> Iterator[str]:
    """Names of the tensors that a node reads, those included that its branches take from around it."""
    yield from filter(None, node.input)
    for graph in (g for a in node.attribute for g in branches(a)):
        made = {*(i.name for i in graph.input), *(t.name for t in graph.initializer)}
        made.update(o for inner in graph.node for o in inner.output)
        yield from (name for inner in graph.node for name in reads(inner) if name not in made)
        yield from (o.name for o in graph.output if o.name not in made)


def _declared(source: Source, what: str) -> list[str]:
    graph = source.model.graph
    return [v.name for v in (graph.input if what == "input" else graph.output)]


def _between(graph: GraphProto, inputs: Iterable[str], outputs: Iterable[str]) -> tuple[tuple[tuple[int, NodeProto], ...], set[str]]:
    """The nodes that compute the outputs from the inputs, and the names of all tensors that are read."""
    given = set(inputs)
    makers = {o: i for i, node in enumerate(graph.node) for o in node.output}
    open_ends, read, kept = list(outputs), set[str](), set[int]()
    while open_ends:
        name = open_ends.pop()
        if name in read:
            continue
        read.add(name)
        if name not in given and name in makers and makers[name] not in kept:
            kept.add(makers[name])
            open_ends.extend(reads(graph.node[makers[name]]))
    return tuple((i, graph.node[i]) for i in sorted(kept)), read


def _inputs(source: Source, names: Sequence[str], ports: Sequence[Port]) -> tuple[Input, ...]:
    shapes = {p.name: p.shape for p in ports if p.shape is not None}
    types = _types(source, names)
    symbols = _symbols(types, shapes)
    faults, made = [], []
    for name in names:
        dims = _dims(types.get(name))
        if dims is not None and name not in shapes:
            dims = [symbols.get(d, d) if isinstance(d, str) else d for d in dims]
        fault = _fault(name, dims, shapes.get(name)) or _type_fault(name, types.get(name))
        if fault:
            faults.append(f"{source.file.name}: {fault}")
        else:
            shape = shapes.get(name) or tuple(d for d in dims or () if isinstance(d, int))
            made.append(Input(name, _dtype(types.get(name)), shape))
    if faults:
        raise MaceError.of(faults)
    return tuple(made)


def _types(source: Source, names: Sequence[str]) -> dict[str, TypeProto]:
    """What the file tells about the tensors; ONNX infers what it does not say about inner ones."""
    graph = source.model.graph
    types = _declarations((graph.input, graph.value_info, graph.output))
    if all(name in types for name in names):
        return types
    try:
        inferred = onnx.shape_inference.infer_shapes(source.model).graph
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        raise MaceError(source.file.name, f"its inner tensors have no known types: {first_line(error)}") from error
    return {**_declarations((inferred.value_info,)), **types}


def _declarations(lists: Iterable[Iterable[ValueInfoProto]]) -> dict[str, TypeProto]:
    return {v.name: v.type for values in lists for v in values}


def _dims(kind: TypeProto | None) -> list[Dim] | None:
    """The dimensions; None where not even their number is known."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return [_dim(d) for d in kind.tensor_type.shape.dim]


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """Exporters write an unknown dimension as nothing, as -1, or as "?", which is no name."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) if any(c.isalnum() for c in dim.dim_param) else None


def _dtype(kind: TypeProto | None) -> DType:
    return element_type(kind.tensor_type.elem_type) if kind is not None and kind.tensor_type.elem_type else DType.F32


def _symbols(types: Mapping[str, TypeProto], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """What a shape of the deployment file tells about symbols that other inputs share."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        dims = _dims(types.get(name)) or []
        found.update({d: n for d, n in zip(dims, shape, strict=False) if isinstance(d, str)})
    return found


def _type_fault(name: str, kind: TypeProto | None) -> str | None:
    if kind is not None and kind.WhichOneof("value") not in ("tensor_type", None):
        return f"input {name!r} is no tensor; cut the graph behind it: name inner tensors under input_tensors"
    try:
        _dtype(kind)
    except ValueError as error:
        return f"input {name!r}: {error}; convert the model to float32"
    return None


def _fault(name: str, dims: Sequence[Dim] | None, shape: Shape | None) -> str | None:
    """What is wrong with an input's shape, with the remedy; None if it is known and agrees with the file."""
    if shape is None and dims is None:
        return f'input {name!r} has an unknown rank; write its shape in the deployment file: input_shapes: ["1,..."]'
    if shape is None:
        assert dims is not None
        unknown = [f"{i} ({d!r})" if d else str(i) for i, d in enumerate(dims) if not isinstance(d, int)]
        line = ",".join(str(d) if isinstance(d, int) else d or f"dim{i}" for i, d in enumerate(dims))
        remedy = f'write it in the deployment file, each name replaced by a number: input_shapes: ["{line}"]'
        return f"input {name!r} leaves dimension {', '.join(unknown)} open; {remedy}" if unknown else None
    if dims is None:
        return None
    if len(dims) == len(shape) and all(not isinstance(d, int) or d in (n, 0) for d, n in zip(dims, shape, strict=True)):
        return None
    known = ",".join("?" if d is None else str(d) for d in dims)
    remedy = "state that shape, or the order of its axes: input_data_formats: NHWC, NCHW or NONE"
    return f"input {name!r} has shape [{known}] in the model, {list(shape)} in the deployment file; {remedy}"
