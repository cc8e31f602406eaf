"""A model file: its tables, read once and checked against its size, and the data of its tensors.

A flatbuffer is a web of offsets that nothing guards: every count is held against the size of the file before
it is believed, all of them together are no longer than the file, and what still leads outside ends in one
error.
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

MOST_AXES = 16


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as the file describes it.

    shape: with the file's number, mostly 1, for what `signature` leaves open as -1; the signature is () if
    nothing is.
    dtype: None for one that the IR does not hold; `kind` is the format's name for it.
    quant: how its integers stand for real numbers, those of 64 bits too, which the IR does not hold.
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
    """A node: its builtin or custom operator, the indices of its tensors (-1: absent), and its table in the file."""

    index: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    table: Any
    version: int = 1

    def options(self, kind: str) -> Any:
        """Its options as the table of this kind; one of defaults where the file has none or another."""
        made, table = getattr(tflite, kind)(), self.table
        if (number := getattr(tflite.BuiltinOptions, kind, None)) is not None:
            union = table.BuiltinOptions() if table.BuiltinOptionsType() == number else None
        else:
            union = (
                table.BuiltinOptions2()
                if table.BuiltinOptions2Type() == getattr(tflite.BuiltinOptions2, kind)
                else None
            )
        made.Init(*((union.Bytes, union.Pos) if union else NO_OPTIONS))
        return made

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
    def makers(self) -> dict[int, Operator]:
        """The operator that computes each tensor."""
        return {o: operator for operator in self.operators for o in operator.outputs if o >= 0}


@dataclass(frozen=True)
class Source:
    """A model file."""

    file: Path
    data: bytes
    subgraphs: tuple[Subgraph, ...]
    buffers: tuple[Any, ...]

    def raw(self, tensor: TensorInfo) -> Array | None:
        """The bytes that the file holds for a tensor; None if it is computed."""
        if not 0 < tensor.buffer < len(self.buffers):
            return None
        buffer = self.buffers[tensor.buffer]
        if buffer.Offset() > 1:
            return np.frombuffer(self.data, np.uint8, buffer.Size(), buffer.Offset())
        return np.asarray(buffer.DataAsNumpy(), np.uint8) if buffer.DataLength() else None

    def array(self, tensor: TensorInfo) -> Array | None:
        """A constant's elements; None if it is computed.

        ValueError if the file does not hold as many as it says.
        """
        raw = self.raw(tensor)
        if raw is None or tensor.dtype is None:
            return None if raw is None else _packed(raw, tensor)
        elements = (
            raw.view(tensor.dtype.numpy.newbyteorder("<")) if raw.nbytes % tensor.dtype.size == 0 else raw
        )
        if tensor.sparsity is not None:
            return dense(elements, tensor.shape, tensor.sparsity)
        if raw.nbytes != prod(tensor.shape) * tensor.dtype.size:
            raise ValueError(
                f"constant {tensor.name!r} has {raw.nbytes} bytes for a shape of {list(tensor.shape)}"
            )
        if tensor.dtype is DType.BOOL:
            return raw.astype(bool).reshape(tensor.shape)
        return elements.reshape(tensor.shape)


def read(file: Path) -> Source:
    """Read a model file; MaceError for anything that is none."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    try:
        if data[4:8] != b"TFL3":
            raise ValueError("it does not bear the mark TFL3")
        graphs, buffers = _Reader(len(data)).model(tflite.Model.GetRootAsModel(data, 0))
    except DAMAGE as error:
        raise MaceError(
            file.name,
            f"is no TensorFlow Lite model, or a damaged one: {error}",
            "convert or download it again",
        ) from error
    return Source(file, data, graphs, buffers)


@dataclass
class _Reader:
    """Reads tables as long as all that was read is no longer than the file. left: bytes."""

    left: int

    def take(self, count: int, size: int) -> None:
        """ValueError if so many elements of this size cannot be in the rest of the file."""
        if not 0 <= count <= self.left // size:
            raise ValueError(f"a list of {count} elements where {self.left} bytes are left")
        self.left -= count * size

    def tables(self, count: int, get: Callable[[int], Any]) -> list[Any]:
        """A vector of tables."""
        self.take(count, 4)
        return [get(i) for i in range(count)]

    def numbers(self, table: Any, field: str, size: int = 4) -> tuple[int, ...]:
        """A vector of whole numbers."""
        self.take(getattr(table, f"{field}Length")(), size)
        values = getattr(table, f"{field}AsNumpy")()
        return () if isinstance(values, int) else tuple(values.tolist())

    def text(self, value: bytes | None) -> str:
        """A string."""
        self.take(len(value or b""), 1)
        return (value or b"").decode()

    def model(self, model: Any) -> tuple[tuple[Subgraph, ...], tuple[Any, ...]]:
        """The graphs and buffers of the file."""
        codes = [
            (self.code(c), int(c.Version()))
            for c in self.tables(model.OperatorCodesLength(), model.OperatorCodes)
        ]
        graphs = self.tables(model.SubgraphsLength(), model.Subgraphs)
        if not graphs:
            raise ValueError("it holds no graph")
        made = tuple(self.subgraph(i, g, codes) for i, g in enumerate(graphs))
        return made, tuple(self.tables(model.BuffersLength(), model.Buffers))

    def code(self, code: Any) -> str:
        """The name of an operator; "custom NAME" for none of the format's own."""
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = BUILTINS.get(builtin, f"builtin {builtin}")
        return f"custom {self.text(code.CustomCode())}" if name == "CUSTOM" else name

    def subgraph(self, index: int, graph: Any, codes: list[tuple[str, int]]) -> Subgraph:
        """A graph; every index in it is that of a tensor or -1."""
        tensors = _distinct(
            [self.tensor(i, t) for i, t in enumerate(self.tables(graph.TensorsLength(), graph.Tensors))]
        )
        operators = [
            self.operator(i, o, codes)
            for i, o in enumerate(self.tables(graph.OperatorsLength(), graph.Operators))
        ]
        inputs, outputs = (self.numbers(graph, field) for field in ("Inputs", "Outputs"))
        made = Subgraph(index, tensors, inputs, outputs, tuple(operators))
        for used in (
            *((i,) for i in (*inputs, *outputs)),
            *(i for o in operators for i in (o.inputs, o.outputs, o.intermediates)),
        ):
            if any(not -1 <= i < len(tensors) for i in used):
                raise ValueError(f"a node names tensor {max(used, key=abs)} of {len(tensors)}")
        if any(i < 0 for i in (*inputs, *outputs)):
            raise ValueError("an input or output of a graph is no tensor")
        return made

    def operator(self, index: int, table: Any, codes: list[tuple[str, int]]) -> Operator:
        """A node.  codes: names of the file's operators with their versions."""
        inputs, outputs, inner = (
            self.numbers(table, field) for field in ("Inputs", "Outputs", "Intermediates")
        )
        code, version = codes[table.OpcodeIndex()]
        return Operator(index, code, inputs, outputs, inner, table, version)

    def tensor(self, index: int, tensor: Any) -> TensorInfo:
        """A tensor's description."""
        shape, signature = self.numbers(tensor, "Shape"), self.numbers(tensor, "ShapeSignature")
        if (
            len(shape) > MOST_AXES
            or min(shape, default=0) < 0
            or prod(max(d, 1) for d in shape) > MAX_ELEMENTS
        ):
            raise ValueError(f"tensor {index} has a shape of {list(shape[: MOST_AXES + 1])}")
        if len(signature) != len(shape) or -1 not in signature:
            signature = ()
        code = tensor.Type()
        stored = DType.I8 if code == tflite.TensorType.INT4 else DTYPES.get(code)
        quant = self.quant(tensor.Quantization(), shape, stored)
        name = self.text(tensor.Name())
        kind = TYPE_NAMES.get(code, f"type {code}")
        buffer, variable, sparsity = tensor.Buffer(), bool(tensor.IsVariable()), tensor.Sparsity()
        return TensorInfo(
            index, name, shape, signature, DTYPES.get(code), kind, buffer, quant, variable, sparsity
        )

    def quant(self, table: Any, shape: Shape, dtype: DType | None) -> Quant | None:
        """How integers stand for real numbers; None for those that do not."""
        if table is None or not table.ScaleLength():
            return None
        self.take(table.ScaleLength(), 4)
        scales = tuple(np.asarray(table.ScaleAsNumpy(), np.float64).tolist())
        zeros = self.numbers(table, "ZeroPoint", 8) or (0,)
        if dtype not in (*STORED, DType.I64) or not all(0 < s < inf for s in scales):
            return None
        count = max(len(scales), len(zeros))
        axis = table.QuantizedDimension() if count > 1 else None
        if axis is not None and not (0 <= axis < len(shape) and count == shape[axis]):
            raise ValueError(f"{count} scales along axis {axis} of a shape of {list(shape)}")
        if min(len(scales), len(zeros)) not in (1, count):
            raise ValueError(f"{len(scales)} scales and {len(zeros)} zero points")
        return Quant(scales * (count // len(scales)), zeros * (count // len(zeros)), axis)


def _distinct(tensors: list[TensorInfo]) -> tuple[TensorInfo, ...]:
    """The tensors, each with a name of its own: the format allows several of one name, and none."""
    seen: set[str] = {t.name for t in tensors}
    given: set[str] = set()
    made = []
    for tensor in tensors:
        name = tensor.name or f"tensor_{tensor.index}"
        while name in given or (name in seen and name != tensor.name):
            name = f"{name}.{tensor.index}"
        given.add(name)
        made.append(replace(tensor, name=name))
    return tuple(made)


def _packed(raw: Array, tensor: TensorInfo) -> Array:
    """Elements of four bits, two a byte, the lower half first.

    ValueError for other types that the IR does not hold.
    """
    count = prod(tensor.shape)
    if tensor.kind != "INT4" or raw.nbytes != (count + 1) // 2:
        raise ValueError(f"constant {tensor.name!r} is of type {tensor.kind}, which is not supported")
    halves = np.stack([raw << 4, raw & 0xF0], axis=-1).view(np.int8) >> 4
    return halves.reshape(-1)[:count].reshape(tensor.shape)
