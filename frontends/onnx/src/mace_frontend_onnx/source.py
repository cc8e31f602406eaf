"""A model file: its checked message without the large tensors, and the tensors, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    checker,
    external_data_helper,
    numpy_helper,
)

from mace_core.errors import MaceError
from mace_core.ir import Array, DType
from mace_frontend_onnx.wire import WireError, without_payloads

OLDEST_OPSET = 7
NEWEST_ANY = (1 << 31) - 1
"""Version that an operator set of any domain can have at most."""

RUNTIME = "com.microsoft"
RUNTIME_OWN = ("SimplifiedLayerNormalization",)
"""Operators of ONNX Runtime that it exports as ONNX's own; ONNX's checker knows none of the name."""


@dataclass(frozen=True)
class Source:
    """A model file and its message, in which large tensors are only described."""

    file: Path
    model: ModelProto

    @property
    def opsets(self) -> dict[str, int]:
        """Version of each operator set by domain; ONNX's own domain is ""."""
        return versions(self.model.opset_import)

    @property
    def locations(self) -> list[str]:
        """The files that hold weights, by their names beside the model."""
        found = (
            e.value
            for t in _tensors(self.model.graph.initializer, self.model.graph.node)
            for e in t.external_data
            if e.key == "location"
        )
        return sorted({*found} - {""})

    def array(self, tensor: TensorProto) -> Array:
        """A tensor's elements, read from the file that holds them; MaceError if they cannot be."""
        try:
            if tensor.data_location != TensorProto.EXTERNAL:
                return np.asarray(numpy_helper.to_array(tensor))
            places = {entry.key: entry.value for entry in tensor.external_data}
            if places.get("location") == "":
                return self._own(tensor, int(places["offset"]), int(places["length"]))
            held = TensorProto()
            held.CopyFrom(tensor)
            external_data_helper.load_external_data_for_tensor(held, str(self.file.parent))
            return np.asarray(numpy_helper.to_array(held))
        # Runtime: of file systems.
        except (OSError, ValueError, TypeError, LookupError, RuntimeError, checker.ValidationError) as error:
            problem = f"the data of tensor {tensor.name!r} cannot be read: {first_line(error)}"
            raise MaceError(
                self.file.name, problem, "export the model again, and keep its data file beside it"
            ) from error

    def _own(self, tensor: TensorProto, offset: int, length: int) -> Array:
        if min(offset, length) < 0 or offset + length > self.file.stat().st_size:
            raise ValueError(f"{length} bytes at {offset} lie beyond the file")
        dtype = element_type(tensor.data_type).numpy.newbyteorder("<")
        with self.file.open("rb") as stream:
            stream.seek(offset)
            return np.frombuffer(stream.read(length), dtype).reshape(tuple(tensor.dims))


def read(file: Path) -> Source:
    """Read and check a model file; MaceError for anything that is no valid ONNX model."""
    try:
        with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            light = without_payloads(data)
        model = ModelProto()
        model.ParseFromString(light)
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    except (WireError, DecodeError, ValueError) as error:  # ValueError: mmap of an empty file
        raise _no_model(file, first_line(error)) from error
    if not model.HasField("graph") or not model.ir_version:
        raise _no_model(file, "it holds no graph")
    if not _readable(model):
        raise _no_model(file, "a name in it is no text")
    _check_versions(file, model)
    return Source(file, model)


def check(source: Source, inputs: Iterable[str], outputs: Iterable[str], nodes: Iterable[NodeProto]) -> None:
    """Let ONNX check the model cut down to these nodes, without the branches of theirs.

    MaceError with its findings.
    """
    hollow = ModelProto()
    hollow.CopyFrom(source.model)
    del hollow.graph.node[:], hollow.graph.output[:], hollow.graph.value_info[:]
    hollow.graph.node.extend(nodes)
    for node in hollow.graph.node:
        # Which branch is read is not known yet; a branch that is not must not be held against the file.
        if node.op_type == "If":
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    attribute.g.CopyFrom(GraphProto(name="branch"))
        if node.op_type in RUNTIME_OWN:
            node.domain = RUNTIME
    if RUNTIME not in versions(hollow.opset_import):
        hollow.opset_import.add(domain=RUNTIME, version=1)
    known = {value.name for value in hollow.graph.input}
    hollow.graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs if name not in known)
    hollow.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    for tensor in _tensors(hollow.graph.initializer, hollow.graph.node):
        if tensor.data_location == TensorProto.EXTERNAL:  # the checker wants elements: none will do
            del tensor.external_data[:], tensor.dims[:]
            tensor.ClearField("data_location")
            tensor.dims.append(0)
            tensor.raw_data = b""
    # It wants them described, which many exporters leave out.
    for value in (*hollow.graph.input, *hollow.graph.output):
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    try:
        checker.check_model(hollow)
    except (checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        text = " ".join(str(error).split())
        raise MaceError(
            source.file.name, f"is no valid ONNX model: {text[:500]}", "export the model again"
        ) from error


def versions(imports: Iterator[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version of each operator set by domain; ONNX's own domain is ""."""
    return {plain_domain(entry.domain): entry.version for entry in imports}


def plain_domain(domain: str) -> str:
    """A domain's name, "" for either of the two names of ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def element_type(code: int) -> DType:
    """The IR's element type for ONNX's; ValueError for one that the IR does not hold."""
    try:
        return DType.of(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError, TypeError):
        known = TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
        raise ValueError(f"its elements are of type {known}, which is not supported") from None


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _no_model(file: Path, why: str) -> MaceError:
    return MaceError(
        file.name, f"is no ONNX model, or a damaged one: {why}", "export or download the model again"
    )


def _readable(message: Message) -> bool:
    """Whether all its texts are texts: protobuf gives bytes that are no UTF-8 as they are."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
            continue
        values = (value,) if isinstance(value, str | bytes | Message) else value
        if not all(_readable(v) if isinstance(v, Message) else isinstance(v, str) for v in values):
            return False
    return True


def _check_versions(file: Path, model: ModelProto) -> None:
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for domain, version in versions(imports).items():
            if not 0 <= version <= NEWEST_ANY:  # onnx itself takes them as 32 bits, and raises TypeError
                problem = (
                    f"uses operator set {version} of domain {domain or 'ai.onnx'!r}, which there cannot be"
                )
                raise MaceError(file.name, problem, "export or download the model again")
    version = versions(model.opset_import).get("", OLDEST_OPSET)
    newest = onnx.defs.onnx_opset_version()
    if version < OLDEST_OPSET:
        remedy = f"convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        raise MaceError(
            file.name, f"uses operator set {version}; {OLDEST_OPSET} is the oldest that is read", remedy
        )
    if version > newest:
        problem = f"uses operator set {version}; the installed onnx {onnx.__version__} knows {newest}"
        raise MaceError(file.name, problem, "install a newer onnx: pip install --upgrade onnx")


def _tensors(initializers: Iterator[TensorProto], nodes: Iterator[NodeProto]) -> Iterator[TensorProto]:
    yield from initializers
    for attribute in (a for node in nodes for a in node.attribute):
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        for graph in branches(attribute):
            yield from _tensors(graph.initializer, graph.node)


def branches(attribute: AttributeProto) -> tuple[GraphProto, ...]:
    """The graphs that an attribute holds."""
    return (attribute.g,) if attribute.type == AttributeProto.GRAPH else tuple(attribute.graphs)
