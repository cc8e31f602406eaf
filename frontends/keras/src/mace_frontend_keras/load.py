"""A Keras model as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import refuse_shapes
from mace_core.importer import refuse_names
from mace_core.ir import MAX_ELEMENTS, DType, Graph, Shape
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_keras.importer import KerasImporter
from mace_frontend_keras.layer import Layer, layer_of
from mace_frontend_keras.network import Call, Expansion, NetworkError, Ref, leaves
from mace_frontend_keras.node import KerasNode, translate_call
from mace_frontend_keras.source import Source, no_model, read
from mace_frontend_keras.translate import convert, explain_unknown
from mace_frontend_keras.weights import Weights

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
class Input:
    """An input of the model as its file describes it.

    -1 where the file leaves a dimension open, None for a shape that it does not know.
    """

    name: str
    dtype: DType
    shape: Shape | None


@dataclass(frozen=True)
class Network:
    """A model's inputs, calls in order, outputs by name, and what other names stand for."""

    inputs: Sequence[Input]
    calls: Sequence[Call]
    outputs: Mapping[str, Ref]
    known: Mapping[str, Ref]

    def ref(self, name: str) -> Ref:
        """The tensor that a name means: "lstm", "lstm:1", or the result of a nested model."""
        stem, _, index = name.rpartition(":")
        return self.known.get(name) or (Ref(stem, int(index)) if stem and index.isdigit() else Ref(name))


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault: what is damaged, or each layer that the IR cannot represent.
    """
    if len(files) != 1:
        raise MaceError(
            model.name,
            f"a Keras model is one file, {len(files)} are named",
            "name the .keras or .h5 file alone",
        )
    source = read(files[0])
    root, network = described(source)
    wanted = {p.name: network.ref(p.name) for p in model.outputs} or dict(network.outputs)
    made = {*(i.name for i in network.inputs), *(c.name for c in network.calls), *network.known}
    for what, ports, own in (
        ("input", model.inputs, [i.name for i in network.inputs]),
        ("output", model.outputs, network.outputs),
    ):
        refuse_names(
            source.file.name, what, [p.name for p in ports if not _is_known(p.name, made)], sorted(made), own
        )
    inputs = _inputs(source, network, model)
    calls = _needed(network.calls, {network.ref(i.name).name for i in inputs}, wanted.values())
    builder = Builder(model.name, {**core_ops(), **ops})
    importer = KerasImporter(source, builder, Weights(source, root), convert)
    importer.refuse_unknown((KerasNode(call, importer) for call in calls), explain_unknown)
    for given in inputs:
        assert given.shape is not None
        tensor = builder.input(given.name, given.dtype, given.shape)
        importer.results.values[network.ref(given.name).name] = tensor
    for call in calls:
        translate_call(importer, call)
    return importer.finish(lambda: [_result(importer, ref) for ref in wanted.values()], list(wanted))


def described(source: Source) -> tuple[Layer, Network]:
    """The model's layers as a tree, and as a network; MaceError if the configuration describes none."""
    try:
        root = layer_of(source.config, "", "")
        if not root.is_model:
            remedy = (
                "make the model by the functional API or as Sequential; Python code is never executed here"
            )
            raise MaceError(source.file.name, f"is a model of class {root.kind!r}", remedy)
        inputs = _declared(root)
        expansion = Expansion()
        results = expansion.model("", root, [Ref(i.name) for i in inputs])
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        text = (
            str(error) if isinstance(error, NetworkError) else f"its configuration makes no sense ({error!r})"
        )
        raise no_model(source.file, text) from error
    outputs = {ref.name: ref for ref in results}
    shown: dict[Ref, str] = {}
    for name, ref in expansion.known.items():  # a result of models in models is called after the outermost
        shown[ref] = min(shown.get(ref, name), name, key=lambda n: (n.count("/"), n))
    return root, Network(
        inputs, expansion.calls, {shown.get(r, n): r for n, r in outputs.items()}, expansion.known
    )


def _declared(root: Layer) -> list[Input]:
    """The inputs of the outermost model; a Sequential one may have none of its own."""
    layers = {child.own_name: child for child in root.children.values()}
    if root.kind != "Sequential":
        names = [str(leaf[0]) for leaf in leaves(root.config.get("input_layers"))]
        missing = [name for name in names if name not in layers]
        if missing:
            raise NetworkError(f"input {missing[0]!r} is not among its layers")
        return [_input(name, layers[name].config) for name in names]
    first = next(iter(layers.values()), None)
    if first is None:
        raise NetworkError("it has no layers")
    if first.kind == "InputLayer":
        return [_input(first.own_name, first.config)]
    found = first
    while found.is_model and found.children:
        found = next(iter(found.children.values()))
    config = {**found.config}
    config.setdefault("batch_shape", root.config.get("build_input_shape"))
    return [_input(f"{first.own_name}_input", config)]


def _input(name: str, config: Mapping[str, Any]) -> Input:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    kind = config.get("dtype")
    if isinstance(kind, dict):
        kind = (kind.get("config") or {}).get("name")
    kind = str(kind or "float32")
    if config.get("sparse") or config.get("ragged") or kind == "string":
        raise NetworkError(
            f"input {name!r} is {'text' if kind == 'string' else 'sparse or ragged'}, which is not supported"
        )
    if isinstance(shape, list) and all(d is None or (type(d) is int and d > 0) for d in shape):
        return Input(name, TYPES.get(kind, DType.F32), tuple(-1 if d is None else d for d in shape))
    return Input(name, TYPES.get(kind, DType.F32), None)


def _inputs(source: Source, network: Network, model: Model) -> list[Input]:
    """The inputs with complete shapes: those of the model, or the tensors that the deployment file names instead."""
    ports = {p.name: p.shape for p in model.inputs}
    declared = {i.name: i for i in network.inputs}
    faults, made, shapes = [], [], {}
    for name in dict.fromkeys((*ports, *declared)):
        known = declared.get(name, Input(name, DType.F32, None))
        shape = ports.get(name) or _complete(known.shape)
        shapes[name] = None if shape is None else [d if d > 0 else None for d in shape]
        if fault := _fault(known, shape):
            faults.append(f"input {name!r} {fault}")
        else:
            made.append(Input(name, known.dtype, shape))
    refuse_shapes(source.file.name, faults, shapes)
    return [i for i in made if i.name in ports or not ports or i.name in _read(network, model)]


def _read(network: Network, model: Model) -> set[str]:
    """Names of the tensors that are read between the inputs and outputs that the deployment file names."""
    outputs = [network.ref(p.name) for p in model.outputs] or list(network.outputs.values())
    stated = {network.ref(p.name).name for p in model.inputs}
    return {ref.name for ref in outputs} | {
        ref.name for call in _needed(network.calls, stated, outputs) for ref in call.refs()
    }


def _complete(shape: Shape | None) -> Shape | None:
    """A batch of unknown size is one."""
    return (1, *shape[1:]) if shape and shape[0] == -1 else shape


def _fault(known: Input, shape: Shape | None) -> str | None:
    """What is wrong with an input's shape, with the remedy."""
    if shape is None:
        return "has no shape in the model"
    if min(shape, default=1) < 1:
        return f"leaves dimension {', '.join(str(i) for i, d in enumerate(shape) if d < 1)} open"
    if prod(shape) > MAX_ELEMENTS:
        return f"has a shape of {list(shape)}; state a smaller one under input_shapes"
    own = known.shape
    if own is None or (
        len(own) == len(shape) and all(d in (-1, n) for d, n in zip(own[1:], shape[1:], strict=True))
    ):
        return None
    text = ",".join("?" if d < 1 else str(d) for d in own)
    return f"has shape [{text}] in the model, {list(shape)} in the deployment file; state that shape, or the order of its axes"


def _needed(calls: Sequence[Call], inputs: set[str], outputs: Iterable[Ref]) -> list[Call]:
    """The calls that compute the outputs from the inputs."""
    kept, wanted = [], {ref.call for ref in outputs} | {ref.name for ref in outputs}
    for call in reversed(calls):
        if call.name in wanted and call.name not in inputs:
            kept.append(call)
            wanted |= {ref.call for ref in call.refs() if ref.name not in inputs}
    return kept[::-1]


def _is_known(name: str, made: set[str]) -> bool:
    stem, _, index = name.rpartition(":")
    return name in made or (stem in made and index.isdigit())


def _result(importer: KerasImporter, ref: Ref) -> str:
    """Return the tensor of an output; MaceError for one that its layer does not have."""
    tensor = importer.results.values.get(ref.name)
    if tensor is None:
        raise MaceError(
            importer.location,
            f"no tensor {ref.name!r}, which the deployment file names; its layer has fewer results",
        )
    return tensor
