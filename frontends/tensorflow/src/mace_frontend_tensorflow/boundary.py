"""Finds the part of a model between the inputs and outputs that the deployment file names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.hints import refuse_shapes
from mace_core.importer import refuse_names, shape_fault
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.flat import GraphOperation, Ref
from mace_frontend_tensorflow.source import SCALAR_IS_UNKNOWN, ServingSignature, TensorFlowSource
from mace_frontend_tensorflow.tensors import dims, element_type
from mace_frontend_tensorflow.variables import VARIABLE_OPS

DEFAULT_SIGNATURE = "serving_default"
PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
NOT_OUTPUTS = (
    *("NoOp", "Const", "Assert", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault"),
    *("SaveV2", "RestoreV2", "Assign", "AssignVariableOp", "VarHandleOp", "VariableV2"),
    *("MergeV2Checkpoints", "Print", "PrintV2"),
)
"""Operators that are no outputs of a frozen graph, although nothing reads them."""

TYPE_ATTRIBUTES = ("dtype", "output_type", "out_type", "DstT", "Tout", "T")
"""Attributes that name the type of an operator's first output. `T` comes last: it is that of the operands."""

BOOL_CODE = 10
"""The number of the type bool in types.proto."""

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class TensorFlowInput:
    """An input of the part."""

    name: str
    ref: Ref
    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class TensorFlowPart:
    """The part of a model that is translated; outputs by their public names.

    off: boolean inputs that the deployment file does not name, which are false.
    """

    inputs: tuple[TensorFlowInput, ...]
    outputs: tuple[tuple[str, Ref], ...]
    off: tuple[Ref, ...]


@dataclass(frozen=True)
class PublicNames:
    """Names of tensors in the file by the names that users know.

    off: boolean inputs that the deployment file does not name, which are false.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    off: Mapping[str, str]


def public_names(source: TensorFlowSource, model: Model) -> PublicNames:
    """Return what the deployment file's names stand for, or else the model's own.

    The name of an output that the file lacks stays as it is: TensorFlow may know it inside of a function.
    """
    signature = _signature(source, model)
    inputs = {port.name: signature.inputs.get(port.name, port.name) for port in model.inputs}
    outputs = {port.name: signature.outputs.get(port.name, port.name) for port in model.outputs}
    known = {name: text for name, text in outputs.items() if _has_tensor(source, text)}
    output_refs = [_ref(source, text, {}) for text in (known or signature.outputs).values()]
    input_refs = {name: _ref(source, text, {}) for name, text in inputs.items()}
    model_inputs = _find_inputs(source, signature, input_refs, output_refs)
    off = _find_off(source, model, model_inputs)
    tensors = {name: signature.inputs.get(name, name) for name in model_inputs}
    inputs |= {name: tensor for name, tensor in tensors.items() if name not in off}
    return PublicNames(inputs, outputs or signature.outputs, {name: tensors[name] for name in off})


def cut_model(source: TensorFlowSource, model: Model) -> TensorFlowPart:
    """Return the part between the inputs and outputs that the deployment file names, or else the whole model.

    A name may be one of the signature, or that of any tensor, with or without ":0": the graph is cut there.
    MaceError for names that no tensor has, and one for all dimensions that are unknown.
    """
    signature = _signature(source, model)
    inputs = {port.name: _ref(source, port.name, signature.inputs) for port in model.inputs}
    outputs = {port.name: _ref(source, port.name, signature.outputs) for port in model.outputs}
    _refuse_unknown(source, "input", inputs, signature.inputs)
    _refuse_unknown(source, "output", outputs, signature.outputs)
    outputs = outputs or {name: _ref(source, text, {}) for name, text in signature.outputs.items()}
    if not outputs:
        raise MaceError(
            source.name,
            "no node of it is an output: each is read by another",
            "name output_tensors in the deployment file",
        )
    model_inputs = _find_inputs(source, signature, inputs, outputs.values())
    off = _find_off(source, model, model_inputs)
    refs = inputs | {name: ref for name, ref in model_inputs.items() if name not in off}
    return TensorFlowPart(
        _read_inputs(source, model, refs), tuple(outputs.items()), tuple(model_inputs[name] for name in off)
    )


def _signature(source: TensorFlowSource, model: Model) -> ServingSignature:
    """Return the signature that has most of the names in the deployment file.

    A frozen graph has none: one is made of its outputs.
    """
    if not source.signatures:
        return ServingSignature("", {}, {name: name for name in _find_outputs(source)})
    stated = {port.name for port in (*model.inputs, *model.outputs)}

    def rank(signature: ServingSignature) -> tuple[int, bool]:
        names: set[str] = set()
        for name, tensor in (*signature.inputs.items(), *signature.outputs.items()):
            names.update((name, tensor, tensor.removesuffix(":0")))
        return len(stated & names), signature.name == DEFAULT_SIGNATURE

    return max(source.signatures, key=rank)


def _find_outputs(source: TensorFlowSource) -> list[str]:
    """Return the nodes that no other reads; a call stands for the last node of its function."""
    flat = source.flat
    read: set[str] = set()
    for operation in flat.operations.values():
        read.update(name for name, _ in flat.inputs(operation))
        read.update(operation.controls)
    calls = {name: flat.resolve((name, 0))[0] for name, index in flat.aliases if index == 0}
    operations = [
        name
        for name, operation in flat.operations.items()
        if name not in read and operation.op not in NOT_OUTPUTS
    ]
    unread_calls = [call for call, result in calls.items() if result not in read]
    return [name for name in operations + unread_calls if not _is_inside(name, calls)]


def _is_inside(name: str, calls: Mapping[str, str]) -> bool:
    """Tell whether a node belongs to the body of a function that is called."""
    return any(name[:i] in calls for i, letter in enumerate(name) if letter == "/")


def _ref(source: TensorFlowSource, name: str, signature: Mapping[str, str]) -> Ref:
    """Return the output that a name means; the names of the signature come first."""
    return source.flat.resolve(reference_of(signature.get(name, name)))


def _has_tensor(source: TensorFlowSource, name: str) -> bool:
    return _ref(source, name, {})[0] in source.flat.operations


def reference_of(text: str) -> Ref:
    """Return the output that a name means, with or without its number."""
    stem, colon, number = text.rpartition(":")
    return (stem, int(number)) if colon and number.isdecimal() and len(number) < 9 else (text, 0)


def _refuse_unknown(
    source: TensorFlowSource, direction: str, refs: Mapping[str, Ref], signature: Mapping[str, str]
) -> None:
    """Raise one MaceError for all names of inputs or outputs that no tensor has."""
    placeholders = [operation.name for operation in _placeholders(source)]
    known = signature if direction == "output" or source.signatures else placeholders
    missing = [name for name, ref in refs.items() if ref[0] not in source.flat.operations]
    refuse_names(source.name, direction, missing, [*signature, *source.flat.operations], known)


def _placeholders(source: TensorFlowSource) -> Iterator[GraphOperation]:
    yield from (operation for operation in source.flat.operations.values() if operation.op in PLACEHOLDERS)


def _find_inputs(
    source: TensorFlowSource, signature: ServingSignature, stated: Mapping[str, Ref], outputs: Iterable[Ref]
) -> dict[str, Ref]:
    """Return the model's own inputs besides those that the deployment file states.

    If that names no input, these are all of the signature; else those that the outputs still need behind the
    cuts.
    """
    cuts = {*stated.values()}
    needed = source.flat.ancestors(outputs, cuts=cuts)
    inputs = {}
    for name, text in signature.inputs.items():
        ref = _ref(source, text, {})
        if ref not in cuts and (not stated or ref[0] in needed):
            inputs[name] = ref
    taken = {*cuts, *inputs.values()}
    for operation in _placeholders(source):
        if operation.name in needed and (operation.name, 0) not in taken:
            inputs[operation.name] = (operation.name, 0)
    return inputs


def _find_off(source: TensorFlowSource, model: Model, inputs: Mapping[str, Ref]) -> list[str]:
    """Return the single booleans that the deployment file leaves out though it names inputs.

    Such a placeholder tells a model of Keras or TensorFlow 1 that it is being trained, and is false when it
    is used.
    """
    if not model.inputs:
        return []
    return [name for name, ref in inputs.items() if _is_single_boolean(source, ref)]


def _is_single_boolean(source: TensorFlowSource, ref: Ref) -> bool:
    operation = source.flat.operations.get(ref[0])
    if operation is None or "dtype" not in operation.attrs or operation.attrs["dtype"].type != BOOL_CODE:
        return False
    # Frozen graphs of old leave the shape of such a placeholder open.
    return not _dims(source, operation, ref[1])


def _read_inputs(
    source: TensorFlowSource, model: Model, refs: Mapping[str, Ref]
) -> tuple[TensorFlowInput, ...]:
    """Return the inputs with type and shape.

    One MaceError for all whose shape is unknown or contradicts the file.
    """
    ports: Mapping[str, Port] = {port.name: port for port in model.inputs}
    faults: list[str] = []
    inputs: list[TensorFlowInput] = []
    shapes: dict[str, Dims | None] = {}
    for name, ref in refs.items():
        operation = source.flat.operations.get(ref[0])
        stated = ports[name].shape if name in ports else None
        known = _dims(source, operation, ref[1])
        # Where the deployment file states no shape, the batch that Keras leaves open is 1.
        shapes[name] = stated if stated is not None or known is None else _with_batch_of_one(known)
        try:
            dtype = _dtype(operation)
        except ValueError as error:
            faults.append(f"input {name!r}: {error}")
            continue
        fault = shape_fault(name, known if stated is not None else shapes[name], stated)
        if fault:
            faults.append(fault)
        else:
            shape = tuple(size for size in shapes[name] or () if size is not None)
            inputs.append(TensorFlowInput(name, ref, dtype, shape))
    refuse_shapes(source.name, faults, shapes)
    return tuple(inputs)


def _with_batch_of_one(known: Dims) -> Dims:
    """Return a shape of several axes whose first is open with 1 there."""
    return (1, *known[1:]) if len(known) > 1 and known[0] is None else known


def _dims(source: TensorFlowSource, operation: GraphOperation | None, index: int) -> Dims | None:
    """Return what the file states of the shape of an output; None if not even its rank is known."""
    if operation is None:
        return None
    if operation.op in (*PLACEHOLDERS, *VARIABLE_OPS) and "shape" in operation.attrs:
        sizes = dims(operation.attrs["shape"].shape)
        return None if sizes == () and source.version < SCALAR_IS_UNKNOWN else sizes
    # TensorFlow's own optimizer leaves the shapes that it inferred in this attribute.
    shapes = operation.attrs["_output_shapes"].list.shape if "_output_shapes" in operation.attrs else ()
    return dims(shapes[index]) if index < len(shapes) else None


def _dtype(operation: GraphOperation | None) -> DType:
    """Return the element type of an operation's first output; ValueError if the IR does not hold it."""
    for key in TYPE_ATTRIBUTES:
        if operation is not None and key in operation.attrs and operation.attrs[key].type:
            return element_type(operation.attrs[key].type)
    return DType.F32
