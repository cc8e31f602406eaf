"""Reads a Keras model as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import Dim, refuse_shapes
from mace_core.importer import needed_nodes, refuse_names, shape_fault, size_fault
from mace_core.ir import DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_keras.importer import KerasImporter
from mace_frontend_keras.layer import KerasLayer, read_layer
from mace_frontend_keras.network import Expansion, LayerCall, NetworkError, Ref, leaves
from mace_frontend_keras.node import KerasNode, translate_call
from mace_frontend_keras.source import KerasFile, invalid_model_error, read
from mace_frontend_keras.translate import convert, explain_unknown
from mace_frontend_keras.weights import LayerWeights

TYPES: Mapping[str, DType] = {
    **dict.fromkeys(("float32", "float16", "bfloat16", "float64"), DType.F32),
    "int8": DType.I8,
    "uint8": DType.U8,
    "int16": DType.I16,
    "uint16": DType.U16,
    "bool": DType.BOOL,
    "int32": DType.I32,
    "uint32": DType.U32,
    "int64": DType.I64,
    "uint64": DType.U64,
}


@dataclass(frozen=True)
class DeclaredInput:
    """An input of the model as its file describes it.

    shape: None for a dimension that the file leaves open; None at all for a shape that it does not know.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class KerasNetwork:
    """A model as one list of calls.

    outputs: name of an output -> the result that it is.
    known: name of a nested model's result -> the result of the call that computes it.
    """

    inputs: Sequence[DeclaredInput]
    calls: Sequence[LayerCall]
    outputs: Mapping[str, Ref]
    known: Mapping[str, Ref]

    def ref(self, name: str) -> Ref:
        """Return the tensor that a name means: "lstm", "lstm:1", or the result of a nested model."""
        if name in self.known:
            return self.known[name]
        stem, _, index = name.rpartition(":")
        return Ref(stem, int(index)) if stem and index.isdigit() else Ref(name)


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault: damage, or each layer that the IR cannot represent.
    """
    if len(files) != 1:
        raise MaceError(
            model.name,
            f"a Keras model is one file, {len(files)} are named",
            "name the .keras or .h5 file alone",
        )
    source = read(files[0])
    root, network = describe_model(source)
    _refuse_unknown_names(source, network, model)
    outputs = {port.name: network.ref(port.name) for port in model.outputs} or dict(network.outputs)
    inputs = _complete_inputs(source, network, model)
    calls = _needed_calls(network, [name for name, _, _ in inputs], outputs.values())
    builder = Builder(model.name, {**core_ops(), **ops})
    importer = KerasImporter(source, builder, LayerWeights(source, root), convert)
    importer.refuse_unknown((KerasNode(call, importer) for call in calls), explain_unknown)
    for name, dtype, shape in inputs:
        importer.results.values[network.ref(name).name] = builder.input(name, dtype, shape)
    for call in calls:
        translate_call(importer, call)
    return importer.finish(lambda: [_find_result(importer, ref) for ref in outputs.values()], list(outputs))


def _refuse_unknown_names(source: KerasFile, network: KerasNetwork, model: Model) -> None:
    """Raise MaceError for names of inputs and outputs in the deployment file that no tensor has."""
    inputs = [item.name for item in network.inputs]
    known = {*inputs, *(call.name for call in network.calls), *network.known}
    for direction, ports, declared in (
        ("input", model.inputs, inputs),
        ("output", model.outputs, list(network.outputs)),
    ):
        missing = [port.name for port in ports if not _is_known(port.name, known)]
        refuse_names(source.file.name, direction, missing, sorted(known), declared)


def describe_model(source: KerasFile) -> tuple[KerasLayer, KerasNetwork]:
    """Return the model's layers as a tree, and its calls; MaceError if the configuration describes none."""
    try:
        root = read_layer(source.config, "", "")
        if not root.is_model:
            remedy = (
                "make the model by the functional API or as Sequential; Python code is never executed here"
            )
            raise MaceError(source.file.name, f"is a model of class {root.kind!r}", remedy)
        inputs = _declared_inputs(root)
        expansion = Expansion()
        results = expansion.model("", root, [Ref(declared.name) for declared in inputs])
    except NetworkError as error:
        raise invalid_model_error(source.file, str(error)) from error
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        text = f"its configuration makes no sense ({error!r})"
        raise invalid_model_error(source.file, text) from error
    # A result of models in models has a name for each; the public one is that of the outermost model.
    public: dict[Ref, str] = {}
    for name, ref in expansion.known.items():
        public[ref] = min(public.get(ref, name), name, key=lambda name: (name.count("/"), name))
    outputs = {public.get(ref, ref.name): ref for ref in dict.fromkeys(results)}
    return root, KerasNetwork(inputs, expansion.calls, outputs, expansion.known)


def _declared_inputs(root: KerasLayer) -> list[DeclaredInput]:
    """Return the inputs of the outermost model; a Sequential one may have none of its own."""
    layers = {child.short_name: child for child in root.children.values()}
    if root.kind != "Sequential":
        names = [str(leaf[0]) for leaf in leaves(root.config.get("input_layers"))]
        missing = [name for name in names if name not in layers]
        if missing:
            raise NetworkError(f"input {missing[0]!r} is not among its layers")
        return [_read_input(name, layers[name].config) for name in names]
    first = next(iter(layers.values()), None)
    if first is None:
        raise NetworkError("it has no layers")
    if first.kind == "InputLayer":
        return [_read_input(first.short_name, first.config)]
    # Without an InputLayer the shape stands in the first layer that is no model, or where the model was
    # built.
    innermost = first
    while innermost.is_model and innermost.children:
        innermost = next(iter(innermost.children.values()))
    config = {**innermost.config}
    config.setdefault("batch_shape", root.config.get("build_input_shape"))
    return [_read_input(f"{first.short_name}_input", config)]


def _read_input(name: str, config: Mapping[str, Any]) -> DeclaredInput:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    kind = config.get("dtype")
    if isinstance(kind, dict):  # a policy for mixed precision
        kind = (kind.get("config") or {}).get("name")
    kind = str(kind or "float32")
    if kind == "string":
        raise NetworkError(f"input {name!r} is text, which is not supported")
    if config.get("sparse") or config.get("ragged"):
        raise NetworkError(f"input {name!r} is sparse or ragged, which is not supported")
    dtype = TYPES.get(kind, DType.F32)
    if isinstance(shape, list) and all(dim is None or (type(dim) is int and dim > 0) for dim in shape):
        return DeclaredInput(name, dtype, tuple(shape))
    return DeclaredInput(name, dtype, None)


def _complete_inputs(
    source: KerasFile, network: KerasNetwork, model: Model
) -> list[tuple[str, DType, Shape]]:
    """Return name, type and complete shape of the inputs of the part that is read.

    They are those of the model, or the tensors that the deployment file names instead. MaceError for all
    whose shapes are missing or contradict the file.
    """
    stated = {port.name: port.shape for port in model.inputs}
    declared = {known.name: known for known in network.inputs}
    faults: list[str | None] = []
    shapes: dict[str, Sequence[Dim] | None] = {}
    for name in dict.fromkeys((*stated, *declared)):
        known = declared[name].shape if name in declared else None
        shape = stated.get(name)
        shapes[name] = shape or (known and _with_batch(known))
        fault = shape_fault(name, known if shape else shapes[name], shape, free=(0,))
        faults.append(fault or size_fault(name, _as_shape(shapes[name])))
    refuse_shapes(source.file.name, filter(None, faults), shapes)
    # Of a model that is cut, inputs that only the part before the cut reads are left out.
    read = _read_names(network, model) if stated else set(declared)
    types = {name: known.dtype for name, known in declared.items()}
    return [
        (name, types.get(name, DType.F32), _as_shape(shape))
        for name, shape in shapes.items()
        if name in stated or name in read
    ]


def _as_shape(dims: Sequence[Dim] | None) -> Shape:
    """Return dimensions that are known to be complete as a shape."""
    return tuple(int(dim or 0) for dim in dims or ())


def _with_batch(shape: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return a shape with a batch of one where its size is open."""
    return (shape[0] or 1, *shape[1:]) if shape else ()


def _read_names(network: KerasNetwork, model: Model) -> set[str]:
    """Return the names of the tensors that are read between the inputs and outputs of the deployment file."""
    outputs = [network.ref(port.name) for port in model.outputs] or list(network.outputs.values())
    calls = _needed_calls(network, [port.name for port in model.inputs], outputs)
    names = {ref.name for ref in outputs}
    for call in calls:
        names.update(ref.name for ref in call.refs())
    return names


def _needed_calls(network: KerasNetwork, inputs: Iterable[str], outputs: Iterable[Ref]) -> list[LayerCall]:
    """Return the calls that compute the outputs from the inputs."""
    cuts = {network.ref(name).name for name in inputs}

    # A call is needed for any of its results; where the graph is cut at one of them, it may be for another.
    def reads(call: LayerCall) -> Iterator[str]:
        return (ref.call for ref in call.refs() if ref.name not in cuts)

    def writes(call: LayerCall) -> Sequence[str]:
        return (call.name,)

    return needed_nodes(network.calls, [ref.call for ref in outputs], cuts, (reads, writes))


def _is_known(name: str, known: set[str]) -> bool:
    stem, _, index = name.rpartition(":")
    return name in known or (stem in known and index.isdigit())


def _find_result(importer: KerasImporter, ref: Ref) -> str:
    """Return the tensor of an output; MaceError for one that its layer does not have."""
    tensor = importer.results.values.get(ref.name)
    if tensor is None:
        problem = f"no tensor {ref.name!r}, which the deployment file names; its layer has fewer results"
        raise MaceError(importer.location, problem)
    return tensor
