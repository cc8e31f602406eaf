"""What a TFLite file says, as plain objects: tensors with the place of their data, and operators.

Only files of this package's own writer are read, so that a file is complete and has one subgraph. The schema
is that of PyPI's `tflite`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tflite

from mace_core.ir import Array

# Little-endian, because a FlatBuffer is so whatever machine has written it.
NUMPY: Mapping[int, np.dtype[Any]] = {
    tflite.TensorType.FLOAT32: np.dtype("<f4"),
    tflite.TensorType.FLOAT16: np.dtype("<f2"),
    tflite.TensorType.INT32: np.dtype("<i4"),
    tflite.TensorType.INT16: np.dtype("<i2"),
    tflite.TensorType.INT8: np.dtype("i1"),
    tflite.TensorType.UINT8: np.dtype("u1"),
    tflite.TensorType.BOOL: np.dtype("?"),
    tflite.TensorType.INT64: np.dtype("<i8"),
}
NAMES: Mapping[int, str] = {
    value: name for name, value in vars(tflite.TensorType).items() if isinstance(value, int)
}
OPERATORS: Mapping[int, str] = {
    value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)
}


@dataclass(frozen=True)
class LiteTensor:
    """Describes a tensor of the file.

    type: a `tflite.TensorType`.  scales, zero_points: empty where it is not quantized.
    axis: the one along which it has several scales.
    offset, size: where its data lies in the file, in bytes; size is 0 where it is no constant.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int
    offset: int
    size: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes that it takes, dense."""
        return self.elements * NUMPY[self.type].itemsize

    @property
    def is_constant(self) -> bool:
        """Tell whether the file has its data."""
        return self.size > 0


@dataclass(frozen=True)
class LiteOperator:
    """Describes an operator: its number of `tflite.BuiltinOperator`, and tensors by number (-1: absent)."""

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any

    @property
    def name(self) -> str:
        """The operator's name in the schema."""
        return OPERATORS.get(self.code, str(self.code))

    def options(self, kind: Callable[[], Any]) -> Any:
        """Return its options as the given class of the schema; all defaults where the file has none."""
        options = kind()
        table = self.table.BuiltinOptions()
        if table is not None:
            options.Init(table.Bytes, table.Pos)
        else:
            options.Init(_EMPTY_TABLE, 4)
        return options


# A table without fields: its vtable (of 4 bytes: own size, table size) lies in front of it.
_EMPTY_TABLE = bytearray(b"\x04\x00\x04\x00\x04\x00\x00\x00")


class LiteModel:
    """Reads a TFLite file.

    data: the file; a subclass may put constants behind it.  file_bytes: the length of the file.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.file_bytes = data, len(data)
        self._model = tflite.Model.GetRootAs(data, 0)
        self._subgraph = self._model.Subgraphs(0)

    @cached_property
    def tensors(self) -> tuple[LiteTensor, ...]:
        """All tensors."""
        return tuple(self._read_tensor(i) for i in range(self._subgraph.TensorsLength()))

    @cached_property
    def operators(self) -> tuple[LiteOperator, ...]:
        """All operators in the order of execution."""
        return tuple(self._read_operator(i) for i in range(self._subgraph.OperatorsLength()))

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the tensors that a run is given."""
        return tuple(self._subgraph.Inputs(i) for i in range(self._subgraph.InputsLength()))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the tensors that a run computes."""
        return tuple(self._subgraph.Outputs(i) for i in range(self._subgraph.OutputsLength()))

    def read(self, tensor: LiteTensor) -> Array:
        """Return a constant's data."""
        flat = np.frombuffer(self.data, NUMPY[tensor.type], tensor.elements, tensor.offset)
        return flat.reshape(tensor.shape)

    def _read_tensor(self, number: int) -> LiteTensor:
        tensor = self._subgraph.Tensors(number)
        quantization = tensor.Quantization()
        scales: tuple[float, ...] = ()
        zero_points: tuple[int, ...] = ()
        axis = 0
        if quantization is not None and quantization.ScaleLength():
            scales = tuple(quantization.Scale(i) for i in range(quantization.ScaleLength()))
            zero_points = tuple(quantization.ZeroPoint(i) for i in range(quantization.ZeroPointLength()))
            zero_points = zero_points or (0,) * len(scales)
            axis = quantization.QuantizedDimension()
        offset, size = self._find_data(tensor.Buffer())
        shape = tuple(tensor.Shape(i) for i in range(tensor.ShapeLength()))
        name = (tensor.Name() or b"").decode(errors="replace")
        return LiteTensor(name, tensor.Type(), shape, scales, zero_points, axis, offset, size)

    def _find_data(self, number: int) -> tuple[int, int]:
        """Return where a buffer's bytes lie in the file, and their count."""
        buffer = self._model.Buffers(number)
        size = buffer.DataLength()
        if not size:
            return 0, 0
        # Field 0 of the table; a flatbuffer's table says how far behind its position a field lies.
        return int(buffer._tab.Vector(buffer._tab.Offset(4))), int(size)

    def _read_operator(self, number: int) -> LiteOperator:
        operator = self._subgraph.Operators(number)
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        # Codes above 126 stand in the newer field alone; older writers fill only the old one.
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        inputs = tuple(operator.Inputs(i) for i in range(operator.InputsLength()))
        outputs = tuple(operator.Outputs(i) for i in range(operator.OutputsLength()))
        return LiteOperator(builtin, inputs, outputs, operator)
