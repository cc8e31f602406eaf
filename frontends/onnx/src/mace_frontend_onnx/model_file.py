"""Reads and checks a model file. Large tensors stay in the file until a node asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
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
from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.wire import WireError, without_payloads

OLDEST_OPSET = 7
MAX_VERSION = (1 << 31) - 1
"""The largest version that an operator set of any domain can have: onnx keeps it in 32 bits."""

RUNTIME_DOMAIN = "com.microsoft"
RUNTIME_OPERATORS = ("SimplifiedLayerNormalization",)
"""Operators that ONNX Runtime exports under ONNX's own domain although ONNX does not define them."""

FIRST_GROUP_NORM = range(18, 21)
"""Operator sets whose GroupNormalization ONNX calls deprecated, and ONNX Runtime computes."""

MAX_CHECKER_TEXT = 500
"""Characters of a message of ONNX's checker that are printed; it may quote whole nodes."""


@dataclass(frozen=True)
class OnnxFile:
    """A model file and its parsed message, in which large tensors are described but not held."""

    path: Path
    model: ModelProto

    @property
    def name(self) -> str:
        """The file name, with which every error message begins."""
        return self.path.name

    @property
    def opsets(self) -> dict[str, int]:
        """Version of each operator set by domain; ONNX's own domain is ""."""
        return versions(self.model.opset_import)

    @cached_property
    def initializers(self) -> frozenset[str]:
        """The names of all constants of the main graph."""
        graph = self.model.graph
        dense = (tensor.name for tensor in graph.initializer)
        sparse = (tensor.values.name for tensor in graph.sparse_initializer)
        return frozenset((*dense, *sparse))

    @property
    def inputs(self) -> list[str]:
        """The inputs of the main graph in order.

        Before IR version 4 every initializer had to be an input as well; those are left out.
        """
        return [value.name for value in self.model.graph.input if value.name not in self.initializers]

    @property
    def outputs(self) -> list[str]:
        """The outputs of the main graph in order."""
        return [value.name for value in self.model.graph.output]

    @property
    def locations(self) -> list[str]:
        """The names of the files that hold weights, relative to the model's folder."""
        names = set()
        for tensor in _all_tensors(self.model.graph.initializer, self.model.graph.node):
            names |= {entry.value for entry in tensor.external_data if entry.key == "location"}
        return sorted(names - {""})

    def array(self, tensor: TensorProto) -> Array:
        """Read a tensor's elements from the file that holds them; MaceError if they cannot be read."""
        try:
            if tensor.data_location != TensorProto.EXTERNAL:
                return _widen_nibbles(np.asarray(numpy_helper.to_array(tensor)))
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries.get("location") == "":
                return self._read_payload(tensor, int(entries["offset"]), int(entries["length"]))
            loaded = TensorProto()
            loaded.CopyFrom(tensor)
            external_data_helper.load_external_data_for_tensor(loaded, str(self.path.parent))
            return _widen_nibbles(np.asarray(numpy_helper.to_array(loaded)))
        # onnx raises RuntimeError for faults of the file system, such as a link that leaves the folder.
        except (OSError, ValueError, TypeError, LookupError, RuntimeError, checker.ValidationError) as error:
            problem = f"the data of tensor {tensor.name!r} cannot be read: {first_line(error)}"
            remedy = "export the model again, and keep its data file beside it"
            raise MaceError(self.name, problem, remedy) from error

    def _read_payload(self, tensor: TensorProto, offset: int, length: int) -> Array:
        """Read elements that `wire.without_payloads` left in the model file."""
        if min(offset, length) < 0 or offset + length > self.path.stat().st_size:
            raise ValueError(f"{length} bytes at {offset} lie beyond the file")
        # The raw form is little-endian on every machine (onnx.proto, TensorProto.raw_data).
        dtype = element_type(tensor.data_type).numpy.newbyteorder("<")
        with self.path.open("rb") as stream:
            stream.seek(offset)
            return np.frombuffer(stream.read(length), dtype).reshape(tuple(tensor.dims))


def read(path: Path) -> OnnxFile:
    """Read a model file; MaceError for anything that is no ONNX model of a supported version."""
    try:
        with path.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            content = without_payloads(data)
        model = ModelProto()
        model.ParseFromString(content)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise MaceError(path.name, problem, "correct the path in the deployment file") from error
    except (WireError, DecodeError, ValueError) as error:  # ValueError: mmap of an empty file
        raise _invalid_file(path, first_line(error)) from error
    if not model.HasField("graph") or not model.ir_version:
        raise _invalid_file(path, "it holds no graph")
    if not _has_valid_strings(model):
        raise _invalid_file(path, "a name in it is not valid UTF-8")
    _check_versions(path, model)
    return OnnxFile(path, model)


def check(file: OnnxFile, inputs: Iterable[str], outputs: Iterable[str], nodes: Iterable[NodeProto]) -> None:
    """Let ONNX's checker look at the model reduced to these nodes, without the branches of Ifs.

    Raises MaceError with what it reports.
    """
    model = ModelProto()
    model.CopyFrom(file.model)
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    opset = versions(model.opset_import).get("", 0)
    for node in model.graph.node:
        _prepare_node(node, opset)
    if RUNTIME_DOMAIN not in versions(model.opset_import):
        model.opset_import.add(domain=RUNTIME_DOMAIN, version=1)
    known = {value.name for value in model.graph.input}
    model.graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs if name not in known)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    for tensor in _all_tensors(model.graph.initializer, model.graph.node):
        # The checker opens data files; a constant without elements spares it the reading.
        if tensor.data_location == TensorProto.EXTERNAL:
            del tensor.external_data[:], tensor.dims[:]
            tensor.ClearField("data_location")
            tensor.dims.append(0)
            tensor.raw_data = b""
    # The checker demands a type and a shape of every input and output, which many exporters leave out.
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    try:
        checker.check_model(model)
    except (checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        text = " ".join(str(error).split())[:MAX_CHECKER_TEXT]
        raise MaceError(file.name, f"is no valid ONNX model: {text}", "export the model again") from error


def _prepare_node(node: NodeProto, opset: int) -> None:
    """Change a copied node so that ONNX's checker reports nothing that is no fault here."""
    # Which branch runs is not known yet; an error inside a branch that never runs must not refuse the file.
    if node.op_type == "If":
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                attribute.g.CopyFrom(GraphProto(name="branch"))
    # The checker refuses unknown and deprecated operators of ONNX's domain, and accepts any of a domain that
    # it does not know.
    is_first_group_norm = node.op_type == "GroupNormalization" and opset in FIRST_GROUP_NORM
    if node.op_type in RUNTIME_OPERATORS or is_first_group_norm:
        node.domain = RUNTIME_DOMAIN


def versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each operator set by domain; ONNX's own domain is ""."""
    return {plain_domain(entry.domain): entry.version for entry in imports}


def plain_domain(domain: str) -> str:
    """Return a domain's name: "" for both names of ONNX's own domain, "" and "ai.onnx"."""
    return "" if domain == "ai.onnx" else domain


def element_type(code: int) -> DType:
    """Return the IR's element type for ONNX's code; RefusedError for a type that the IR does not support."""
    try:
        return DType.of(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError, TypeError):
        known = TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
        problem = f"its elements are of type {known}, which is not supported"
        raise RefusedError(f"{problem}; convert the model to float32") from None


def _widen_nibbles(array: Array) -> Array:
    """Return integers of four bits as those of eight, which the IR holds; other arrays as they are."""
    # The numbers stay the same. Handlers that ask for the element type still learn that it has four bits.
    widened = {"int4": np.int8, "uint4": np.uint8}.get(array.dtype.name)
    return array if widened is None else array.astype(widened)


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message, or its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _invalid_file(path: Path, reason: str) -> MaceError:
    problem = f"is no ONNX model, or a damaged one: {reason}"
    return MaceError(path.name, problem, "export or download the model again")


def _has_valid_strings(message: Message) -> bool:
    """Tell whether every string field is text: protobuf returns bytes that are not UTF-8 as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
            continue
        values = (value,) if isinstance(value, str | bytes | Message) else value
        if not all(_has_valid_strings(v) if isinstance(v, Message) else isinstance(v, str) for v in values):
            return False
    return True


def _check_versions(path: Path, model: ModelProto) -> None:
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for domain, version in versions(imports).items():
            if not 0 <= version <= MAX_VERSION:  # onnx raises TypeError for these
                problem = f"uses operator set {version} of domain {domain or 'ai.onnx'!r}, which cannot exist"
                raise MaceError(path.name, problem, "export or download the model again")
    version = versions(model.opset_import).get("", OLDEST_OPSET)
    newest = onnx.defs.onnx_opset_version()
    if version < OLDEST_OPSET:
        problem = f"uses operator set {version}; {OLDEST_OPSET} is the oldest that is read"
        remedy = f"convert it: onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        raise MaceError(path.name, problem, remedy)
    if version > newest:
        problem = f"uses operator set {version}; the installed onnx {onnx.__version__} knows {newest}"
        raise MaceError(path.name, problem, "install a newer onnx: pip install --upgrade onnx")


def _all_tensors(initializers: Iterable[TensorProto], nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Yield the constants of a graph and of the graphs inside it."""
    yield from initializers
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            for graph in graphs_of(attribute):
                yield from _all_tensors(graph.initializer, graph.node)


def graphs_of(attribute: AttributeProto) -> tuple[GraphProto, ...]:
    """Return the graphs that an attribute holds."""
    return (attribute.g,) if attribute.type == AttributeProto.GRAPH else tuple(attribute.graphs)
