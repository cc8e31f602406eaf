"""Which part of a model is wanted: its inputs with complete shapes, its outputs, and the nodes between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.hints import Dim, is_complete, lines, refuse_shapes, shape_lines
from mace_core.importer import refuse_names
from mace_core.ir import Array, DType, Shape
from mace_frontend_onnx.source import Source, branches, element_type, first_line


@dataclass(frozen=True)
class Input:
    """An input of the wanted part."""

    name: str
    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class Part:
    """The wanted part of a model; `nodes` with their positions in the file, in order.

    notes: what was decided in the user's place, with the lines that decide otherwise.
    indices: outputs that the deployment file states as integers, and that may be indices of text.
    fixed: inputs of the file that always have these values, and are no inputs here.
    certain: positions of the nodes that are read whichever branches are taken.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    nodes: tuple[tuple[int, NodeProto], ...]
    notes: tuple[str, ...] = ()
    indices: frozenset[str] = frozenset()
    fixed: Mapping[str, Array] = field(default_factory=dict)
    certain: frozenset[int] = frozenset()


def wanted(source: Source, model: Model) -> Part:
    """The part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be that of any tensor: the graph is cut there. MaceError for a name that no tensor has, and one
    for all dimensions that stay unknown.
    """
    graph = source.model.graph
    held = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    own = [i.name for i in graph.input if i.name not in held]
    made = [o for node in graph.node for o in node.output if o]
    for what, ports, known in (
        ("input", model.inputs, [*own, *held, *made]),
        ("output", model.outputs, [*made, *own, *held]),
    ):
        refuse_names(
            source.file.name,
            what,
            [p.name for p in ports if p.name not in known],
            known,
            _declared(source, what),
        )
    stated = [p.name for p in model.inputs]
    outputs, expanded = _outputs(source, model)
    nodes, read = _between(graph, stated, outputs, inside=True)
    certain, _ = _between(graph, stated, outputs, inside=False)
    fixed = fixed_values(source, model)
    names = [
        *stated,
        *(name for name in own if name not in (*stated, *fixed) and (name in read or not stated)),
    ]
    inputs, notes = _inputs(source, names, model.inputs)
    indices = frozenset(
        p.name for p in model.outputs if p.dtype and not p.dtype.is_float and p.dtype is not DType.BOOL
    )
    return Part(inputs, outputs, nodes, (*notes, *expanded), indices, fixed, frozenset(i for i, _ in certain))


def fixed_values(source: Source, model: Model) -> dict[str, Array]:
    """The values that the deployment file gives inputs of the file for good, in the inputs' own types and shapes.

    MaceError for a name that is no input or is stated as an input as well, and for values that do not fit.
    """
    given = model.keys.get("input_values") or {}
    assert isinstance(given, Mapping)
    graph = source.model.graph
    own = [i.name for i in graph.input if i.name not in {t.name for t in graph.initializer}]
    refuse_names(source.file.name, "input", [name for name in given if name not in own], own, own)
    types, faults, made = _declarations((graph.input,)), [], {}
    for name, value in given.items():
        if any(p.name == name for p in model.inputs):
            faults.append(
                f"{source.file.name}: input {name!r} is in input_values and in input_tensors; leave it out of one"
            )
            continue
        try:
            made[name] = _fitted(value, _dtype(types[name]), _dims(types[name]))
        except ValueError as error:
            faults.append(f"{source.file.name}: input_values: {name!r}: {error}")
    if faults:
        raise MaceError.of(faults)
    return made


def _fitted(value: object, dtype: DType, dims: Sequence[Dim] | None) -> Array:
    """A number for every element, or a number for each; an open dimension is 1, or what a list needs.

    ValueError for what does not fit.
    """
    listed = isinstance(value, Sequence)
    text = f"{value!r} is no value of {dtype.numpy.name}; write numbers that the input can hold"
    numbers = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            array = numbers.astype(dtype.numpy)
    except (OverflowError, TypeError):
        raise ValueError(text) from None
    is_exact = np.array_equal(array.astype(np.float64), numbers.astype(np.float64))
    if numbers.ndim > 1 or not (is_exact or dtype.is_float) or not np.isfinite(array).all():
        raise ValueError(text)
    shape = tuple(d if isinstance(d, int) else -1 for d in dims) if dims is not None else numbers.shape
    if not listed:
        return np.full(tuple(max(d, 1) if d == -1 else d for d in shape), array)
    if shape.count(-1) > 1:
        shape = tuple(1 if d == -1 and i < len(shape) - 1 else d for i, d in enumerate(shape))
    try:
        return array.reshape(shape)
    except ValueError:
        stated = ",".join("?" if d is None else str(d) for d in dims or ())
        raise ValueError(
            f"{numbers.size} numbers for shape [{stated}]; write one for all, or one for each element"
        ) from None


def _outputs(source: Source, model: Model) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The wanted outputs, and notes: a sequence that the model puts together at its end becomes the tensors in it."""
    listed = tuple(p.name for p in model.outputs)
    sequences = sequences_of(source.model.graph)
    if listed:
        faults = [
            f"{source.file.name}: output {name!r} is a sequence; name the tensors in it:{lines('output', sequences[name])}"
            for name in listed
            if name in sequences
        ]
        if faults:
            raise MaceError.of(faults)
        return listed, ()
    names: list[str] = []
    notes: list[str] = []
    for value in source.model.graph.output:
        parts = sequences.get(value.name)
        names.extend(parts or (value.name,))
        if parts:
            notes.append(
                f"{source.file.name}: output {value.name!r} is a sequence; its tensors are outputs: {', '.join(parts)}"
            )
    return tuple(names), tuple(notes)


def sequences_of(graph: GraphProto) -> dict[str, tuple[str, ...]]:
    """The outputs of a graph that are sequences, with the tensors of which they are put together."""
    made = {
        node.output[0]: tuple(node.input)
        for node in graph.node
        if node.op_type == "SequenceConstruct" and node.output
    }
    return {value.name: made[value.name] for value in graph.output if value.name in made}


def declared(source: Source) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the model's own inputs and outputs, in its order."""
    graph = source.model.graph
    held = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return tuple(i.name for i in graph.input if i.name not in held), tuple(o.name for o in graph.output)


def reads(node: NodeProto, inside: bool = True, taken: str = "") -> Iterator[str]:
    """Names of the tensors that a node reads, those included that its branches take from around it.

    inside: whether the branches of an If are looked into.  taken: the only one of them that counts.
    """
    yield from filter(None, node.input)
    if node.op_type == "If" and not inside:
        return
    for graph in (g for a in node.attribute if not taken or a.name == taken for g in branches(a)):
        made = {*(i.name for i in graph.input), *(t.name for t in graph.initializer)}
        made.update(o for inner in graph.node for o in inner.output)
        yield from (name for inner in graph.node for name in reads(inner) if name not in made)
        yield from (o.name for o in graph.output if o.name not in made)


def _declared(source: Source, what: str) -> list[str]:
    graph = source.model.graph
    return [v.name for v in (graph.input if what == "input" else graph.output)]


def _between(
    graph: GraphProto, inputs: Iterable[str], outputs: Iterable[str], inside: bool
) -> tuple[tuple[tuple[int, NodeProto], ...], set[str]]:
    """The nodes that compute the outputs from the inputs, and the names of all tensors that are read.

    inside: whether branches read something.
    """
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
            open_ends.extend(reads(graph.node[makers[name]], inside))
    return tuple((i, graph.node[i]) for i in sorted(kept)), read


def _inputs(
    source: Source, names: Sequence[str], ports: Sequence[Port]
) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    """The inputs with complete shapes, and a note for a batch that the file leaves open and that becomes 1."""
    shapes = {p.name: p.shape for p in ports if p.shape is not None}
    types = _types(source, names)
    symbols = _symbols(types, shapes)
    known = {name: _known(_dims(types.get(name)), shapes.get(name), symbols) for name in names}
    batched = _one_of_a_batch(known)
    faults = []
    for name in names:
        kind = types.get(name)
        fault = _contradiction(name, _dims(kind), shapes.get(name)) or _type_fault(name, kind)
        if fault:
            faults.append(fault)
    faults += [_open(name, dims) for name, dims in batched.items() if not is_complete(dims)]
    refuse_shapes(source.file.name, faults, batched)
    complete = {name: tuple(d for d in dims or () if isinstance(d, int)) for name, dims in batched.items()}
    made = tuple(Input(name, _dtype(types.get(name)), shape) for name, shape in complete.items())
    changed = [name for name in names if batched[name] != known[name]]
    if not changed:
        return made, ()
    listed = ", ".join(map(repr, changed))
    note = f"{source.file.name} leaves the first dimension of {listed} open: taken as 1; for another, write in the deployment file:"
    return made, (note + shape_lines(complete),)


def _known(dims: list[Dim] | None, shape: Shape | None, symbols: Mapping[str, int]) -> list[Dim] | None:
    """The dimensions of an input as far as the file, its own stated shape and those of other inputs tell them."""
    if dims is None or (shape is not None and not _is_one_number(dims, shape)):
        return dims if shape is None else list(shape)
    return [symbols.get(d, d) if isinstance(d, str) else d for d in dims]


def _one_of_a_batch(known: Mapping[str, list[Dim] | None]) -> dict[str, list[Dim] | None]:
    """The shapes with 1 for a first dimension that is open, as the other frontends read a batch, and wherever its symbol stands."""
    batches = {dims[0] for dims in known.values() if dims and isinstance(dims[0], str)}
    made: dict[str, list[Dim] | None] = {}
    for name, dims in known.items():
        made[name] = (
            None
            if dims is None
            else [1 if d in batches or (i == 0 and d is None) else d for i, d in enumerate(dims)]
        )
    return made


def _types(source: Source, names: Sequence[str]) -> dict[str, TypeProto]:
    """What the file tells about the tensors; ONNX infers what it does not say about inner ones."""
    graph = source.model.graph
    types = _declarations((graph.input, graph.value_info, graph.output))
    if all(name in types for name in names):
        return types
    try:
        inferred = onnx.shape_inference.infer_shapes(source.model).graph
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        raise MaceError(
            source.file.name, f"its inner tensors have no known types: {first_line(error)}"
        ) from error
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
    return (
        element_type(kind.tensor_type.elem_type)
        if kind is not None and kind.tensor_type.elem_type
        else DType.F32
    )


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


def _open(name: str, dims: Sequence[Dim] | None) -> str:
    """What is unknown of an input's shape."""
    if dims is None:
        return f"input {name!r} has an unknown rank"
    unknown = [f"{i} ({d!r})" if d else str(i) for i, d in enumerate(dims) if not isinstance(d, int)]
    return f"input {name!r} leaves dimension {', '.join(unknown)} open"


def _is_one_number(dims: Sequence[Dim], shape: Shape) -> bool:
    """Whether a scalar of the model is stated as the deployment file can: an empty shape is read as (1,)."""
    return not dims and shape == (1,)


def _contradiction(name: str, dims: Sequence[Dim] | None, shape: Shape | None) -> str | None:
    """How an input's stated shape contradicts the file, with the remedy.

    None if they agree or one is unknown.
    """
    if dims is None or shape is None or _is_one_number(dims, shape):
        return None
    if len(dims) == len(shape) and all(
        not isinstance(d, int) or d in (n, 0) for d, n in zip(dims, shape, strict=True)
    ):
        return None
    known = ",".join("?" if d is None else str(d) for d in dims)
    remedy = "state that shape, or the order of its axes: input_data_formats: NHWC, NCHW or NONE"
    return f"input {name!r} has shape [{known}] in the model, {list(shape)} in the deployment file; {remedy}"
