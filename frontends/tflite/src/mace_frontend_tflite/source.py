"""Reads a model file: its tables, checked against the file's size, and the data of its tensors.

A flatbuffer is a web of offsets that nothing guards. Every count is compared with the size of the file before
memory is taken for it, and all vectors together must be no longer than the file; an offset that still leads
outside ends in one error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from mace_core.errors import MaceError
from mace_core.ir import MAX_ELEMENTS, Array, DType, Quant, Shape
from mace_core.quantization import STORED
from mace_frontend_tflite.schema import BUILTINS, DAMAGE, DTYPES, NO_OPTIONS, TYPE_NAMES
from mace_frontend_tflite.sparse import dense

MAX_AXES = 16
"""More than any kernel of LiteRT takes; a longer shape is damage."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as the file describes it.

    shape: with the file's number, mostly 1, for an axis that `signature` leaves open as -1.
    signature: () if no axis is left open.
    dtype: None for a type that the IR does not have; `kind` is the format's name for it.
    quant: how its integers stand for real numbers; also for those of 64 bits, for which the IR has none.
    variable: whether it is a state.
    """

    index: int
    name: str
    shape: Shape
    signature: Shape
    dtype: DType | None
    kind: str
    buffer: int
    quant: Quant | None
    variable: bool
    sparsity: Any


@dataclass(frozen=True)
class Operator:
    """A node of a graph.

    code: its operator by its name in the schema, or "custom NAME".
    inputs, outputs, intermediates: the numbers of its tensors, -1 for one that is absent.
    table: its table in the file.
    """

    index: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    table: Any
    version: int = 1

    def options(self, kind: str) -> Any:
        """Return its options as a table of this kind, with defaults where the file has none or another."""
        options, table = getattr(tflite, kind)(), self.table
        number = getattr(tflite.BuiltinOptions, kind, None)
        # The format's first union of options is full; newer operators have theirs in a second one.
        if number is None:
            number, present = getattr(tflite.BuiltinOptions2, kind), table.BuiltinOptions2Type()
            union = table.BuiltinOptions2() if present == number else None
        else:
            union = table.BuiltinOptions() if table.BuiltinOptionsType() == number else None
        options.Init(*((union.Bytes, union.Pos) if union else NO_OPTIONS))
        return options

    @property
    def custom(self) -> bytes:
        """The options of a custom operator as bytes."""
        return bytes(self.table.CustomOptionsAsNumpy()) if self.table.CustomOptionsLength() else b""


@dataclass(frozen=True)
class Subgraph:
    """A graph of the file."""

    index: int
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]

    @cached_property
    def producers(self) -> dict[int, Operator]:
        """The number of a tensor -> the operator that computes it, the last one if there are several."""
        producers = {}
        for operator in self.operators:
            producers.update(dict.fromkeys(operator.outputs, operator))
        producers.pop(-1, None)  # an output that is absent
        return producers


@dataclass(frozen=True)
class Signature:
    """A function of the file that applications call by name; graph: the number of its graph."""

    name: str
    graph: int


@dataclass(frozen=True)
class TfliteFile:
    """A model file."""

    file: Path
    data: bytes
    subgraphs: tuple[Subgraph, ...]
    buffers: tuple[Any, ...]
    signatures: tuple[Signature, ...] = ()

    def note_signatures(self) -> str | None:
        """Say which of several signatures is read; None where every signature is the main graph."""
        main = [repr(signature.name) for signature in self.signatures if signature.graph == 0]
        others = [repr(signature.name) for signature in self.signatures if signature.graph != 0]
        if not others:
            return None
        read_one = f"signature {', '.join(main)}" if main else "the main graph, which has no signature,"
        remedy = "for another, convert the model again with that signature alone"
        return f"{self.file.name}: {read_one} is read, not {', '.join(others)}; {remedy}"

    def raw(self, tensor: TensorInfo) -> Array | None:
        """Return the bytes that the file holds for a tensor; None if it is computed."""
        if not 0 < tensor.buffer < len(self.buffers):
            return None
        buffer = self.buffers[tensor.buffer]
        # Files above 2 GB keep data behind the flatbuffer, whose offsets have 32 bits; 1 is what the
        # converter writes before it knows the offset.
        if buffer.Offset() > 1:
            return np.frombuffer(self.data, np.uint8, buffer.Size(), buffer.Offset())
        return np.asarray(buffer.DataAsNumpy(), np.uint8) if buffer.DataLength() else None

    def array(self, tensor: TensorInfo) -> Array | None:
        """Return a constant's elements; None if it is computed.

        ValueError if the file does not hold as many as it says.
        """
        raw = self.raw(tensor)
        if raw is None:
            return None
        if tensor.dtype is None:
            return _unpack_int4(raw, tensor)
        is_complete = raw.nbytes % tensor.dtype.size == 0
        elements = raw.view(tensor.dtype.numpy.newbyteorder("<")) if is_complete else raw
        if tensor.sparsity is not None:
            return dense(elements, tensor.shape, tensor.sparsity)
        if raw.nbytes != prod(tensor.shape) * tensor.dtype.size:
            raise ValueError(
                f"constant {tensor.name!r} has {raw.nbytes} bytes for a shape of {list(tensor.shape)}"
            )
        if tensor.dtype is DType.BOOL:
            return raw.astype(bool).reshape(tensor.shape)
        return elements.reshape(tensor.shape)


def read(file: Path) -> TfliteFile:
    """Read a model file; MaceError for a file that is not one."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    try:
        if data[4:8] != b"TFL3":
            raise ValueError("it does not have the mark TFL3")
        reader, root = _Reader(len(data)), tflite.Model.GetRootAsModel(data, 0)
        graphs, buffers = reader.model(root)
        signatures = reader.signatures(root)
    except DAMAGE as error:
        raise MaceError(
            file.name,
            f"is no TensorFlow Lite model, or a damaged one: {error}",
            "convert or download it again",
        ) from error
    return TfliteFile(file, data, graphs, buffers, signatures)


@dataclass
class _Reader:
    """Reads tables as long as their vectors together are no longer than the file.

    left: bytes of the file that no vector has taken yet. Vectors may share bytes, so without this budget a
    small file could describe any number of tables.
    """

    left: int

    def take(self, count: int, size: int) -> None:
        """Take a vector from the budget.

        ValueError if the rest of the file cannot hold so many elements of this size.
        """
        if not 0 <= count <= self.left // size:
            raise ValueError(f"a list of {count} elements where {self.left} bytes are left")
        self.left -= count * size

    def tables(self, count: int, get: Callable[[int], Any]) -> list[Any]:
        """Return a vector of tables."""
        self.take(count, 4)  # an offset for each
        return [get(i) for i in range(count)]

    def numbers(self, table: Any, field: str, size: int = 4) -> tuple[int, ...]:
        """Return a vector of integers."""
        self.take(getattr(table, f"{field}Length")(), size)
        values = getattr(table, f"{field}AsNumpy")()
        # The library gives the number 0 for an absent vector.
        return () if isinstance(values, int) else tuple(values.tolist())

    def text(self, value: bytes | None) -> str:
        """Return a string."""
        self.take(len(value or b""), 1)
        return (value or b"").decode()

    def model(self, model: Any) -> tuple[tuple[Subgraph, ...], tuple[Any, ...]]:
        """Return the graphs and buffers of the file."""
        tables = self.tables(model.OperatorCodesLength(), model.OperatorCodes)
        codes = [(self.code(table), int(table.Version())) for table in tables]
        graphs = self.tables(model.SubgraphsLength(), model.Subgraphs)
        if not graphs:
            raise ValueError("it holds no graph")
        subgraphs = tuple(self.subgraph(i, graph, codes) for i, graph in enumerate(graphs))
        return subgraphs, tuple(self.tables(model.BuffersLength(), model.Buffers))

    def signatures(self, model: Any) -> tuple[Signature, ...]:
        """Return the signatures of the file."""
        tables = self.tables(model.SignatureDefsLength(), model.SignatureDefs)
        return tuple(Signature(self.text(t.SignatureKey()), int(t.SubgraphIndex())) for t in tables)

    def code(self, code: Any) -> str:
        """Return the name of an operator; "custom NAME" for one that the format does not define."""
        # Old files have the number in a field of 8 bits, new ones in both as far as it fits there: the larger
        # is right (tensorflow/compiler/mlir/lite/schema/schema_utils.cc).
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = BUILTINS.get(builtin, f"builtin {builtin}")
        return f"custom {self.text(code.CustomCode())}" if name == "CUSTOM" else name

    def subgraph(self, index: int, graph: Any, codes: list[tuple[str, int]]) -> Subgraph:
        """Return a graph; ValueError unless every number in it is that of a tensor, or -1 in a node."""
        tables = self.tables(graph.TensorsLength(), graph.Tensors)
        tensors = _name_uniquely([self.tensor(i, table) for i, table in enumerate(tables)])
        tables = self.tables(graph.OperatorsLength(), graph.Operators)
        operators = tuple(self.operator(i, table, codes) for i, table in enumerate(tables))
        inputs, outputs = (self.numbers(graph, field) for field in ("Inputs", "Outputs"))
        lists = [inputs, outputs]
        for operator in operators:
            lists += [operator.inputs, operator.outputs, operator.intermediates]
        for numbers in lists:
            if numbers and not -1 <= min(numbers) <= max(numbers) < len(tensors):
                raise ValueError(f"a node names tensor {max(numbers, key=abs)} of {len(tensors)}")
        if -1 in (*inputs, *outputs):
            raise ValueError("an input or output of a graph is no tensor")
        return Subgraph(index, tensors, inputs, outputs, operators)

    def operator(self, index: int, table: Any, codes: list[tuple[str, int]]) -> Operator:
        """Return a node.  codes: names of the file's operators with their versions."""
        inputs, outputs, inner = (
            self.numbers(table, field) for field in ("Inputs", "Outputs", "Intermediates")
        )
        code, version = codes[table.OpcodeIndex()]
        if table.LargeCustomOptionsOffset() > 1:
            raise ValueError(f"operator {index} has its options behind the tables, which is not supported")
        return Operator(index, code, inputs, outputs, inner, table, version)

    def tensor(self, index: int, tensor: Any) -> TensorInfo:
        """Return a tensor's description; ValueError for a shape that no tensor has."""
        shape, signature = self.numbers(tensor, "Shape"), self.numbers(tensor, "ShapeSignature")
        elements = prod(max(size, 1) for size in shape)
        if len(shape) > MAX_AXES or any(size < 0 for size in shape) or elements > MAX_ELEMENTS:
            raise ValueError(f"tensor {index} has a shape of {list(shape[: MAX_AXES + 1])}")
        if len(signature) != len(shape) or -1 not in signature:
            signature = ()
        code = tensor.Type()
        # Numbers of four bits are read as ones of eight, with the same scale.
        storage_dtype = DType.I8 if code == tflite.TensorType.INT4 else DTYPES.get(code)
        quant = self.quant(tensor.Quantization(), shape, storage_dtype)
        name = self.text(tensor.Name())
        kind, dtype = TYPE_NAMES.get(code, f"type {code}"), DTYPES.get(code)
        # Scales that lie elsewhere, as those of blocks: without them the integers mean nothing.
        has_details = tensor.Quantization() is not None and bool(tensor.Quantization().DetailsType())
        if has_details and storage_dtype in (*STORED, DType.I64):
            kind, dtype = f"{kind} with quantization details", None
        buffer, variable, sparsity = tensor.Buffer(), bool(tensor.IsVariable()), tensor.Sparsity()
        return TensorInfo(index, name, shape, signature, dtype, kind, buffer, quant, variable, sparsity)

    def quant(self, table: Any, shape: Shape, dtype: DType | None) -> Quant | None:
        """Return how integers stand for real numbers; None for those that do not."""
        if table is None or not table.ScaleLength():
            return None
        self.take(table.ScaleLength(), 4)
        scales = tuple(np.asarray(table.ScaleAsNumpy(), np.float64).tolist())
        zeros = self.numbers(table, "ZeroPoint", 8) or (0,)
        # Float tensors and indices have scales left over from training, and some converters write a scale of
        # 0 for none.
        if dtype not in (*STORED, DType.I64) or not all(0 < s < inf for s in scales):
            return None
        count = max(len(scales), len(zeros))
        axis = table.QuantizedDimension() if count > 1 else None
        if axis is not None and not (0 <= axis < len(shape) and count == shape[axis]):
            raise ValueError(f"{count} scales along axis {axis} of a shape of {list(shape)}")
        if min(len(scales), len(zeros)) not in (1, count):
            raise ValueError(f"{len(scales)} scales and {len(zeros)} zero points")
        return Quant(scales * (count // len(scales)), zeros * (count // len(zeros)), axis)


def _name_uniquely(tensors: list[TensorInfo]) -> tuple[TensorInfo, ...]:
    """Return the tensors, each with a name of its own: the format allows several of one name, and none."""
    stated: set[str] = {info.name for info in tensors}
    taken: set[str] = set()
    renamed = []
    for info in tensors:
        name = info.name or f"tensor_{info.index}"
        while name in taken or (name in stated and name != info.name):
            name = f"{name}.{info.index}"
        taken.add(name)
        renamed.append(replace(info, name=name))
    return tuple(renamed)


def _unpack_int4(raw: Array, tensor: TensorInfo) -> Array:
    """Return elements of four bits, which lie two in a byte, the lower half first.

    ValueError for other types that the IR does not have.
    """
    count = prod(tensor.shape)
    if tensor.kind != "INT4" or raw.nbytes != (count + 1) // 2:
        raise ValueError(f"constant {tensor.name!r} is of type {tensor.kind}, which is not supported")
    # A shift to the right of int8 extends the sign of the upper four bits, and drops the lower ones.
    halves = np.stack([raw << 4, raw], axis=-1).view(np.int8) >> 4
    return halves.reshape(-1)[:count].reshape(tensor.shape)
