"""Which part of a model is wanted: its inputs with complete shapes, and its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.hints import refuse_shapes
from mace_core.importer import refuse_names
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.flat import Operation, Ref
from mace_frontend_tensorflow.source import SCALAR_IS_UNKNOWN, Signature, Source
from mace_frontend_tensorflow.tensors import dims, element_type
from mace_frontend_tensorflow.variables import VARIABLES

DEFAULT_SIGNATURE = "serving_default"
PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
SILENT = (
    *(
        "NoOp",
        "Const",
        "Assert",
        "Placeholder",
        "PlaceholderV2",
        "PlaceholderWithDefault",
        "SaveV2",
        "RestoreV2",
        "Assign",
    ),
    *("AssignVariableOp", "VarHandleOp", "VariableV2", "MergeV2Checkpoints", "Print", "PrintV2"),
)
"""Operators whose outputs nobody asks for, whether or not anything reads them."""

TYPE_ATTRIBUTES = ("dtype", "output_type", "out_type", "DstT", "Tout", "T")
"""Attributes that tell the type of an operator's first output, the most telling first."""

TRUTH = 10
"""The number of the type of truth values."""

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class Input:
    """An input of the wanted part."""

    name: str
    ref: Ref
    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class Part:
    """The wanted part of a model; outputs by their public names.

    off: truth values that nobody states, which are false.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, Ref], ...]
    off: tuple[Ref, ...]


@dataclass(frozen=True)
class Public:
    """Names of tensors in the file by the names that users know.

    off: truth values that nobody states, which are false.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    off: Mapping[str, str]


def public(source: Source, model: Model) -> Public:
    """What the deployment file's names stand for, else the model's own.

    An output that no tensor is stays as it is named.
    """
    signature = _signature(source, model)
    given = {p.name: signature.inputs.get(p.name, p.name) for p in model.inputs}
    stated = {p.name: signature.outputs.get(p.name, p.name) for p in model.outputs}
    known = {
        name: text for name, text in stated.items() if _ref(source, text, {})[0] in source.flat.operations
    }
    wanted = (known or signature.outputs).values()
    refs = {name: _ref(source, text, {}) for name, text in given.items()}
    own = _placeholders(source, signature, refs, [_ref(source, text, {}) for text in wanted])
    off = _off(source, model, own)
    texts = {name: signature.inputs.get(name, name) for name in own}
    inputs = {name: text for name, text in texts.items() if name not in off}
    return Public({**given, **inputs}, stated or signature.outputs, {name: texts[name] for name in off})


def wanted(source: Source, model: Model) -> Part:
    """The part between the inputs and outputs that the deployment file names, or the whole model.

    A name may be one of the signature, or that of any tensor, with or without ":0": the graph is cut there.
    MaceError for a name that no tensor has, and one for all dimensions that stay unknown.
    """
    signature = _signature(source, model)
    given = {p.name: _ref(source, p.name, signature.inputs) for p in model.inputs}
    outputs = {p.name: _ref(source, p.name, signature.outputs) for p in model.outputs}
    _known(source, "input", given, signature.inputs)
    _known(source, "output", outputs, signature.outputs)
    outputs = outputs or {name: _ref(source, text, {}) for name, text in signature.outputs.items()}
    if not outputs:
        raise MaceError(
            source.name,
            "no node of it is an output: each is read by another",
            "name output_tensors in the deployment file",
        )
    own = _placeholders(source, signature, given, outputs.values())
    off = _off(source, model, own)
    asked = {name: ref for name, ref in own.items() if name not in off}
    return Part(
        _inputs(source, model, given, asked), tuple(outputs.items()), tuple(own[name] for name in off)
    )


def _signature(source: Source, model: Model) -> Signature:
    """The signature with most of the names that the deployment file states.

    A frozen graph as if it had one.
    """
    if not source.signatures:
        return Signature("", {}, {name: name for name in _ends(source)})
    stated = {p.name for p in (*model.inputs, *model.outputs)}

    def fit(signature: Signature) -> tuple[int, bool]:
        names = {
            n
            for side in (signature.inputs, signature.outputs)
            for pair in side.items()
            for n in (*pair, pair[1].removesuffix(":0"))
        }
        return len(stated & names), signature.name == DEFAULT_SIGNATURE

    return max(source.signatures, key=fit)


def _ends(source: Source) -> list[str]:
    """The nodes that no other reads."""
    flat = source.flat
    read = {ref[0] for o in flat.operations.values() for ref in flat.inputs(o)}
    read.update(name for o in flat.operations.values() for name in o.controls)
    calls = {name: flat.resolved((name, 0))[0] for name, index in flat.aliases if index == 0}
    own = [
        n
        for n, o in flat.operations.items()
        if n not in read and o.op not in SILENT and not _inside(n, calls)
    ]
    return own + [call for call, end in calls.items() if end not in read and not _inside(call, calls)]


def _inside(name: str, calls: Mapping[str, str]) -> bool:
    """Whether a node belongs to the body of a function that is called."""
    return any(name[:i] in calls for i, letter in enumerate(name) if letter == "/")


def _ref(source: Source, name: str, public: Mapping[str, str]) -> Ref:
    """The output that a name means; the signature's own names come first."""
    return source.flat.resolved(reference_of(public.get(name, name)))


def reference_of(text: str) -> Ref:
    """The output that a name tells, with or without its number."""
    stem, colon, number = text.rpartition(":")
    return (stem, int(number)) if colon and number.isdecimal() and len(number) < 9 else (text, 0)


def _known(source: Source, what: str, refs: Mapping[str, Ref], public: Mapping[str, str]) -> None:
    own = public if what == "output" or source.signatures else [o.name for o in _declared(source)]
    missing = [name for name, ref in refs.items() if ref[0] not in source.flat.operations]
    refuse_names(source.name, what, missing, [*public, *source.flat.operations], own)


def _declared(source: Source) -> Iterator[Operation]:
    yield from (o for o in source.flat.operations.values() if o.op in PLACEHOLDERS)


def _placeholders(
    source: Source, signature: Signature, given: Mapping[str, Ref], outputs: Iterable[Ref]
) -> dict[str, Ref]:
    """The model's own inputs besides those that are stated: all of its signature, or those that its outputs need."""
    stated = {*given.values()}
    reached = _reached(source, stated, outputs)
    found = {}
    for name, text in signature.inputs.items():
        ref = _ref(source, text, {})
        if ref not in stated and (not given or ref[0] in reached):
            found[name] = ref
    taken = {*stated, *found.values()}
    own = (o.name for o in _declared(source) if o.name in reached)
    return found | {name: (name, 0) for name in own if (name, 0) not in taken}


def _off(source: Source, model: Model, own: Mapping[str, Ref]) -> list[str]:
    """Single truth values that the deployment file does not name though it names inputs: they tell a model that it is being trained."""
    found = []
    for name, (node, index) in own.items():
        operation = source.flat.operations.get(node)
        if (
            model.inputs
            and operation is not None
            and "dtype" in operation.attrs
            and operation.attrs["dtype"].type == TRUTH
        ):
            found += [name] if not _dims(source, operation, index) else []
    return found


def _reached(source: Source, held: set[Ref], outputs: Iterable[Ref]) -> set[str]:
    found: set[str] = set()
    open_ends = [ref for ref in outputs if ref not in held]
    while open_ends:
        name, _ = open_ends.pop()
        if name not in found and name in source.flat.operations:
            found.add(name)
            open_ends.extend(
                ref for ref in source.flat.inputs(source.flat.operations[name]) if ref not in held
            )
    return found


def _inputs(
    source: Source, model: Model, given: Mapping[str, Ref], own: Mapping[str, Ref]
) -> tuple[Input, ...]:
    ports: Mapping[str, Port] = {p.name: p for p in model.inputs}
    faults, made, shapes = [], [], {}
    for name, ref in {**given, **own}.items():
        operation = source.flat.operations.get(ref[0])
        shape = ports[name].shape if name in ports else None
        known = _dims(source, operation, ref[1])
        shapes[name] = shape if shape is not None or known is None else _one_of_a_batch(known)
        try:
            dtype = _dtype(operation)
        except ValueError as error:
            faults.append(f"input {name!r}: {error}")
            continue
        if fault := _fault(name, known, shape):
            faults.append(fault)
        else:
            made.append(Input(name, ref, dtype, tuple(d for d in shapes[name] or () if d is not None)))
    refuse_shapes(source.name, faults, shapes)
    return tuple(made)


def _one_of_a_batch(known: Dims) -> Dims:
    """A shape whose first axis of several is left open, as Keras leaves the batch, with 1 there."""
    return (1, *known[1:]) if len(known) > 1 and known[0] is None else known


def _dims(source: Source, operation: Operation | None, index: int) -> Dims | None:
    """What the file tells about the shape of an output; None where not even its rank is known."""
    if operation is None:
        return None
    listed = operation.attrs["_output_shapes"].list.shape if "_output_shapes" in operation.attrs else ()
    if operation.op in (*PLACEHOLDERS, *VARIABLES) and "shape" in operation.attrs:
        found = dims(operation.attrs["shape"].shape)
        return None if found == () and source.version < SCALAR_IS_UNKNOWN else found
    return dims(listed[index]) if index < len(listed) else None


def _dtype(operation: Operation | None) -> DType:
    for key in TYPE_ATTRIBUTES:
        if operation is not None and key in operation.attrs and operation.attrs[key].type:
            return element_type(operation.attrs[key].type)
    return DType.F32


def _fault(name: str, known: Dims | None, shape: Shape | None) -> str | None:
    """What is wrong with an input's shape, with the remedy; None if it is known and agrees with the file."""
    if shape is None and known is None:
        return f"input {name!r} has an unknown rank"
    if shape is None:
        assert known is not None
        unknown = [str(i) for i, d in enumerate(_one_of_a_batch(known)) if d is None]
        return f"input {name!r} leaves dimension {', '.join(unknown)} open" if unknown else None
    if known is None or _agrees(known, shape):
        return None
    stated = ",".join("?" if d is None else str(d) for d in known)
    remedy = "state that shape, or the order of its axes: input_data_formats: NHWC, NCHW or NONE"
    return f"input {name!r} has shape [{stated}] in the model, {list(shape)} in the deployment file; {remedy}"


def _agrees(known: Sequence[int | None], shape: Shape) -> bool:
    return len(known) == len(shape) and all(d is None or d == n for d, n in zip(known, shape, strict=True))
