"""The operands and operations of a network, collected in the order in which the driver adds them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tflite

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_target_mdla.lite_model import NAMES, LiteModel, LiteOperator, LiteTensor
from mace_target_mdla.neuron import NeuronOperation, OperandType

PLACE = "MDLA network"
ALIGNMENT = 4
"""Bytes, of each constant: the widest element that a processor may read in place."""

# An old quantized MobileNet has biases whose scales differ from the product by one part in 8 million.
BIAS_TOLERANCE = 1e-6
"""By how much the scale of a bias may differ from the product, relative to it: some bits of a float."""

TENSOR_TYPES: Mapping[int, OperandType] = {
    tflite.TensorType.FLOAT32: OperandType.TENSOR_FLOAT32,
    tflite.TensorType.FLOAT16: OperandType.TENSOR_FLOAT16,
    tflite.TensorType.INT32: OperandType.TENSOR_INT32,
    # Symmetric: the writer refuses 16 bits with a zero point, which LiteRT's kernels ignore.
    tflite.TensorType.INT16: OperandType.TENSOR_QUANT16_SYMM,
    tflite.TensorType.INT8: OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    tflite.TensorType.UINT8: OperandType.TENSOR_QUANT8_ASYMM,
    tflite.TensorType.BOOL: OperandType.TENSOR_BOOL8,
}
QUANTIZED = (
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT16_SYMM,
)


@dataclass(frozen=True)
class Operand:
    """Describes one operand.

    axis, scales: of a tensor with a scale for each channel.  offset, size: of its constant in the table's
    data, in bytes; size is 0 where a run or an operation gives the value.
    """

    type: OperandType
    shape: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    axis: int = 0
    scales: tuple[float, ...] = ()
    offset: int = 0
    size: int = 0


@dataclass(frozen=True)
class OperationCall:
    """Applies an operation to operands, which it names by their numbers; name: for messages."""

    code: NeuronOperation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str


class NetworkTable:
    """Collects a network.

    Constants of the TFLite file stay in it: the table's data is the file, with the few constants behind it
    that only the adapter has. Weights would be in the library twice otherwise.
    """

    def __init__(self, model: LiteModel) -> None:
        self.model = model
        self.operands: list[Operand] = []
        self.operations: list[OperationCall] = []
        self.data = bytearray(model.data)
        self._tensors: dict[int, int] = {}
        self._constants: dict[tuple[object, ...], int] = {}

    def tensor(self, number: int) -> int:
        """Return the operand of a tensor of the file, added where it is new."""
        if number not in self._tensors:
            self._tensors[number] = self._add(self._describe(self.model.tensors[number]))
        return self._tensors[number]

    def int32(self, value: int) -> int:
        """Return the operand of an integer scalar."""
        return self._constant(OperandType.INT32, (), struct.pack("<i", value))

    def boolean(self, value: bool) -> int:
        """Return the operand of a boolean scalar."""
        return self._constant(OperandType.BOOL, (), struct.pack("<B", value))

    def real(self, value: float, like: LiteTensor) -> int:
        """Return the operand of a real scalar: 16 bits beside a tensor of such, 32 bits otherwise."""
        if like.type == tflite.TensorType.FLOAT16:
            return self._constant(OperandType.FLOAT16, (), struct.pack("<e", value))
        return self._constant(OperandType.FLOAT32, (), struct.pack("<f", value))

    def vector(self, values: Sequence[int]) -> int:
        """Return the operand of a tensor of integers with one axis."""
        data = struct.pack(f"<{len(values)}i", *values)
        return self._constant(OperandType.TENSOR_INT32, (len(values),), data)

    def one(self, like: LiteTensor) -> tuple[int, float]:
        """Return the operand of the number 1, stored as a tensor of eight bits is, and its scale.

        The scale is a power of two, so that its product with another one is exact, and as small as the type
        allows: the adapter's MUL demands a result's scale that is larger than the product of its operands'.
        """
        kind = TENSOR_TYPES[like.type]
        count = {OperandType.TENSOR_QUANT8_ASYMM: 128, OperandType.TENSOR_QUANT8_ASYMM_SIGNED: 64}.get(kind)
        if count is None:
            raise MaceError(
                PLACE, f"{like.name!r} has more than eight bits", "leave its operation to the CPU"
            )
        return self._constant(kind, (1,), bytes([count]), 1 / count), 1 / count

    def array(self, array: Array, like: LiteTensor) -> int:
        """Return the operand of a constant of real numbers, of the type of a tensor of the file."""
        data = np.ascontiguousarray(array)
        return self._constant(TENSOR_TYPES[like.type], data.shape, data.tobytes())

    def weights(self, number: int, axis: int) -> int:
        """Return the operand of filters, with a scale for each output channel where the file has several.

        axis: the one along which the operation has its output channels.
        """
        tensor = self.model.tensors[number]
        if len(tensor.scales) < 2:
            return self.tensor(number)
        # The adapter has one type of filters with several scales: int8 with zero points of 0.
        if tensor.type != tflite.TensorType.INT8 or tensor.axis != axis or any(tensor.zero_points):
            raise MaceError(
                PLACE,
                f"the filters {tensor.name!r} are not int8 with scales along axis {axis}",
                f"quantize them symmetrically along axis {axis}",
            )
        key = ("weights", number)
        if key not in self._constants:
            kind = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
            offset = self._place(tensor)
            operand = Operand(kind, tensor.shape, 0.0, 0, axis, tensor.scales, offset, tensor.size)
            self._constants[key] = self._add(operand)
        return self._constants[key]

    def bias(self, number: int, count: int, pair: tuple[LiteTensor, LiteTensor]) -> int:
        """Return the operand of a bias; zeros where the file has none, because the adapter demands one.

        number: of the tensor; -1 for none.  pair: the data and the filters. The scale of a quantized bias is
        the product of theirs, or 0 where the filters have several: so says NNAPI's page of CONV_2D. A file's
        own scale may differ in its last bit, and stands: the graph computes with it.
        """
        data, filters = pair
        is_real = not data.scales
        kind = TENSOR_TYPES[data.type] if is_real else OperandType.TENSOR_INT32
        scale = 0.0
        if not is_real and len(filters.scales) == 1:
            # In single precision, as operands hold scales: a product of doubles may differ in its last bit.
            scale = float(np.float32(data.scales[0]) * np.float32(filters.scales[0]))
        if number < 0:
            width = 2 if kind is OperandType.TENSOR_FLOAT16 else 4
            return self._constant(kind, (count,), bytes(count * width), scale)
        tensor = self.model.tensors[number]
        if TENSOR_TYPES.get(tensor.type) is not kind:
            raise MaceError(
                PLACE,
                f"the bias {tensor.name!r} is {NAMES[tensor.type]}, and the adapter takes {kind.name}",
                "leave this operation to the CPU",
            )
        if not tensor.is_constant:
            raise MaceError(
                PLACE, f"the bias {tensor.name!r} is no constant", "leave this operation to the CPU"
            )
        if scale and tensor.scales:
            if abs(tensor.scales[0] - scale) > BIAS_TOLERANCE * scale:
                problem = f"the bias {tensor.name!r} has the scale {tensor.scales[0]}, and must have {scale}"
                raise MaceError(PLACE, problem, "quantize it with the product of data and filters")
            scale = tensor.scales[0]
        # With the scale, which is 0 beside filters with several: one tensor may be the bias of both kinds.
        key = ("bias", number, scale)
        if key not in self._constants:
            operand = Operand(kind, tensor.shape, scale, offset=self._place(tensor), size=tensor.size)
            self._constants[key] = self._add(operand)
        return self._constants[key]

    def call(self, code: NeuronOperation, inputs: Sequence[int], operator: LiteOperator) -> None:
        """Add an operation that computes the outputs of an operator of the file."""
        outputs = tuple(self.tensor(number) for number in operator.outputs)
        name = self.model.tensors[operator.outputs[0]].name
        self.operations.append(OperationCall(code, tuple(inputs), outputs, f"{operator.name} {name!r}"))

    def intermediate(self, code: NeuronOperation, inputs: Sequence[int], like: LiteTensor) -> int:
        """Add an operation whose result only the next one reads; returns its operand."""
        result = self._add(self._describe(like))
        call = OperationCall(code, tuple(inputs), (result,), f"{code.name} for {like.name!r}")
        self.operations.append(call)
        return result

    def read(self, number: int) -> Array:
        """Return the data of a constant that becomes scalars."""
        tensor = self.model.tensors[number]
        if not tensor.is_constant:
            raise MaceError(PLACE, f"{tensor.name!r} is no constant", "leave its operation to the CPU")
        return self.model.read(tensor)

    def _describe(self, tensor: LiteTensor) -> Operand:
        if tensor.type not in TENSOR_TYPES:
            type_name = NAMES.get(tensor.type, str(tensor.type))
            raise MaceError(
                PLACE,
                f"{tensor.name!r} is {type_name}, which the adapter does not have",
                "leave it to the CPU",
            )
        if len(tensor.scales) > 1:
            raise MaceError(
                PLACE, f"{tensor.name!r} has {len(tensor.scales)} scales", "quantize it with one scale"
            )
        kind = TENSOR_TYPES[tensor.type]
        scale = tensor.scales[0] if tensor.scales else 0.0
        zero_point = tensor.zero_points[0] if tensor.scales else 0
        if kind in QUANTIZED and not scale:
            raise MaceError(
                PLACE,
                f"{tensor.name!r} holds plain integers of {NAMES[tensor.type]}, and the adapter's stand for "
                "real numbers",
                "leave it to the CPU",
            )
        offset = self._place(tensor)
        return Operand(kind, tensor.shape, scale, zero_point, offset=offset, size=tensor.size)

    def _place(self, tensor: LiteTensor) -> int:
        """Return where a constant lies in the data: in the file if it is aligned there, else behind it."""
        if not tensor.size or tensor.offset % ALIGNMENT == 0:
            return tensor.offset
        return self._append(self.model.data[tensor.offset : tensor.offset + tensor.size])

    def _append(self, data: bytes) -> int:
        self.data.extend(bytes(-len(self.data) % ALIGNMENT))
        offset = len(self.data)
        self.data.extend(data)
        return offset

    def _constant(self, kind: OperandType, shape: tuple[int, ...], data: bytes, scale: float = 0.0) -> int:
        key = (kind, shape, data, scale)
        if key not in self._constants:
            operand = Operand(kind, shape, scale, offset=self._append(data) if data else 0, size=len(data))
            self._constants[key] = self._add(operand)
        return self._constants[key]

    def _add(self, operand: Operand) -> int:
        self.operands.append(operand)
        return len(self.operands) - 1
