"""A model file: its tables, read once and checked against its size, and the data of its tensors.

A flatbuffer is a web of offsets that nothing guards: every count is held against the size of the file before it is believed, and what
still leads outside ends in one error. The format is that of tensorflow/lite/schema/schema.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tflite

from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Quant, Shape
from mace_core.quantization import STORED

DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, KeyError)
"""What reading a damaged flatbuffer raises."""

MOST_ELEMENTS = 1 << 40

DTYPES: Mapping[int, DType] = MappingProxyType(
    {
        tflite.TensorType.FLOAT32: DType.F32,
        tflite.TensorType.FLOAT16: DType.F16,
        tflite.TensorType.FLOAT64: DType.F64,
        tflite.TensorType.INT8: DType.I8,
        tflite.TensorType.UINT8: DType.U8,
        tflite.TensorType.INT16: DType.I16,
        tflite.TensorType.UINT16: DType.U16,
        tflite.TensorType.INT32: DType.I32,
        tflite.TensorType.UINT32: DType.U32,
        tflite.TensorType.INT64: DType.I64,
        tflite.TensorType.UINT64: DType.U64,
        tflite.TensorType.BOOL: DType.BOOL,
    }
)
BUILTINS: Mapping[int, str] = MappingProxyType({v: k for k, v in vars(tflite.BuiltinOperator).items() if k.isupper()})


@dataclass(frozen=True)
class TensorInfo:
    """A tensor as the file describes it, with 1 for dimensions that it leaves open. dtype: None for one that the IR does not hold."""

    index: int
    name: str
    shape: Shape
    dtype: DType | None
    buffer: int
    quant: Quant | None
    variable: bool
    sparse: bool


@dataclass(frozen=True)
class Operator:
    """A node: its builtin or custom operator, the indices of its tensors (-1: absent), and its table in the file."""

    index: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    table: Any

    def options(self, kind: str) -> Any:
        """Its options as the table of this kind; an empty one where the file has none or another."""
        union, made = self.table.BuiltinOptions(), getattr(tflite, kind)()
        if union is None:
            return None
        made.Init(union.Bytes, union.Pos)
        return made


@dataclass(frozen=True)
class Subgraph:
    """A graph of the file."""

    name: str
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


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
        """A constant's elements; None if it is computed. ValueError if the file does not hold as many as it says."""
        raw = self.raw(tensor)
        if raw is None:
            return None
        if tensor.dtype is None:
            raise ValueError(f"constant {tensor.name!r} is of a type that is not supported")
        if tensor.sparse:
            raise ValueError(f"constant {tensor.name!r} is sparse, and read by an operator other than DENSIFY")
        if raw.nbytes != prod(tensor.shape) * tensor.dtype.size:
            raise ValueError(f"constant {tensor.name!r} has {raw.nbytes} bytes for a shape of {list(tensor.shape)}")
        return raw.view(tensor.dtype.numpy.newbyteorder("<")).reshape(tensor.shape)


def read(file: Path) -> Source:
    """Read a model file; MaceError for anything that is none."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file") from error
    try:
        if data[4:8] != b"TFL3":
            raise ValueError("it does not bear the mark TFL3")
        model = tflite.Model.GetRootAsModel(data, 0)
        codes = [_code(c) for c in _several(data, model.OperatorCodesLength(), model.OperatorCodes)]
        graphs = tuple(_subgraph(data, g, codes) for g in _several(data, model.SubgraphsLength(), model.Subgraphs))
        buffers = tuple(_several(data, model.BuffersLength(), model.Buffers))
        if not graphs:
            raise ValueError("it holds no graph")
    except DAMAGE as error:
        raise MaceError(file.name, f"is no TensorFlow Lite model, or a damaged one: {error}", "convert or download it again") from error
    return Source(file, data, graphs, buffers)


def _several(data: bytes, count: int, get: Callable[[int], Any]) -> list[Any]:
    if not 0 <= count <= len(data) // 4:
        raise ValueError(f"a list of {count} tables in {len(data)} bytes")
    return [get(i) for i in range(count)]


def _code(code: Any) -> str:
    builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = BUILTINS.get(builtin, f"builtin {builtin}")
    return f"custom {code.CustomCode().decode()}" if name == "CUSTOM" else name


def _subgraph(data: bytes, graph: Any, codes: list[str]) -> Subgraph:
    tensors = tuple(_tensor(i, t) for i, t in enumerate(_several(data, graph.TensorsLength(), graph.Tensors)))
    operators = tuple(_operator(i, o, codes) for i, o in enumerate(_several(data, graph.OperatorsLength(), graph.Operators)))
    made = Subgraph((graph.Name() or b"").decode(), tensors, _indices(graph.InputsAsNumpy()), _indices(graph.OutputsAsNumpy()), operators)
    for used in (made.inputs, made.outputs, *(i for o in operators for i in (o.inputs, o.outputs, o.intermediates))):
        if any(not -1 <= i < len(tensors) for i in used):
            raise ValueError(f"a node names tensor {max(used)} of {len(tensors)}")
    return made


def _operator(index: int, table: Any, codes: list[str]) -> Operator:
    lists = (table.InputsAsNumpy(), table.OutputsAsNumpy(), table.IntermediatesAsNumpy())
    inputs, outputs, intermediates = (_indices(v) for v in lists)
    return Operator(index, codes[table.OpcodeIndex()], inputs, outputs, intermediates, table)


def _indices(values: Any) -> tuple[int, ...]:
    return () if isinstance(values, int) else tuple(int(v) for v in values)


def _tensor(index: int, tensor: Any) -> TensorInfo:
    shape = _indices(tensor.ShapeAsNumpy())
    if any(d < 0 for d in shape) or prod(max(d, 1) for d in shape) > MOST_ELEMENTS:
        raise ValueError(f"tensor {index} has a shape of {list(shape)}")
    name = (tensor.Name() or b"").decode() or f"tensor_{index}"
    dtype = DTYPES.get(tensor.Type())
    quant = _quant(tensor.Quantization(), shape, dtype)
    return TensorInfo(index, name, shape, dtype, tensor.Buffer(), quant, bool(tensor.IsVariable()), tensor.Sparsity() is not None)


def _quant(table: Any, shape: Shape, dtype: DType | None) -> Quant | None:
    """How integers stand for real numbers; None for those that do not."""
    if table is None or dtype not in STORED or not table.ScaleLength():
        return None
    scales = np.asarray(table.ScaleAsNumpy(), np.float64)
    zeros = np.asarray(table.ZeroPointAsNumpy(), np.int64) if table.ZeroPointLength() else np.zeros(1, np.int64)
    if not (scales > 0).all():
        return None
    axis = table.QuantizedDimension() if scales.size > 1 or (zeros.size > 1) else None
    if axis is not None and not (0 <= axis < len(shape) and scales.size == shape[axis]):
        raise ValueError(f"{scales.size} scales along axis {axis} of a shape of {list(shape)}")
    points = np.broadcast_to(zeros, scales.shape)
    return Quant(tuple(scales.tolist()), tuple(int(z) for z in points), axis)
