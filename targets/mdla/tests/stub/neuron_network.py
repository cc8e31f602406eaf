"""Reads a network as the stub of the Neuron adapter writes it, and writes TFLite files operator by operator."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

FLOAT32, INT32, T_FLOAT32, T_INT32, T_UINT8, BOOL, T_INT16, T_FLOAT16, T_BOOL, FLOAT16, T_CHANNELS, T_INT8 = (
    0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14,
)  # fmt: skip
NUMPY = {
    FLOAT32: "<f4", INT32: "<i4", T_FLOAT32: "<f4", T_INT32: "<i4", T_UINT8: "u1", BOOL: "?", T_INT16: "<i2", T_FLOAT16: "<f2",
    T_BOOL: "?", FLOAT16: "<f2", T_CHANNELS: "i1", T_INT8: "i1",
}  # fmt: skip
TYPES = {"<f4": 0, "<f2": 1, "<i4": 2, "u1": 3, "?": 6, "<i2": 7, "i1": 9}
"""TensorType of TFLite's schema."""
QUANTIZED = (T_UINT8, T_INT8, T_INT16)


@dataclass
class Operand:
    type: int
    shape: tuple[int, ...]
    scale: float
    zero: int
    axis: int
    scales: tuple[float, ...]
    data: bytes

    @property
    def value(self) -> np.ndarray:
        assert self.data, "a constant is demanded here"
        return np.frombuffer(self.data, NUMPY[self.type]).reshape(self.shape)

    @property
    def scalar(self) -> float | int | bool:
        assert self.type in (FLOAT32, INT32, BOOL, FLOAT16), "a scalar is demanded here"
        return self.value.item()

    @property
    def is_quantized(self) -> bool:
        return self.type in QUANTIZED


class Network:
    def __init__(self, data: bytes) -> None:
        assert data[:8] == b"STUBNET1"
        self.data, self.at = data, 8
        operands, operations, inputs, outputs, self.relaxed = self.take("5I")
        self.operands = [self.read_operand() for _ in range(operands)]
        self.operations = [self.read_operation() for _ in range(operations)]
        self.inputs, self.outputs = self.take(f"{inputs}I"), self.take(f"{outputs}I")
        assert self.at == len(data)

    def take(self, form: str) -> tuple:
        result = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return result

    def read_operand(self) -> Operand:
        kind, rank, *dims, scale, zero, axis, count, size = self.take("iI8IfiIIQ")
        scales = self.take(f"{count}f")
        data = self.data[self.at : self.at + size]
        self.at += size
        return Operand(kind, tuple(dims[:rank]), scale, zero, axis, scales, data)

    def read_operation(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        code, inputs, outputs = self.take("iII")
        return code, self.take(f"{inputs}I"), self.take(f"{outputs}I")


class Writer:
    """Builds a TFLite file operator by operator."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph.tensors, self.graph.operators = [], []
        self.known: dict[int, int] = {}

    def tensor(self, index: int) -> int:
        if index not in self.known:
            o = self.network.operands[index]
            quant = (
                (list(o.scales), [0] * len(o.scales), o.axis)
                if o.scales
                else ([o.scale], [o.zero], 0)
                if o.scale
                else None
            )
            self.known[index] = self.add(NUMPY[o.type], o.shape, o.data, quant)
        return self.known[index]

    def add(self, kind: str, shape: tuple[int, ...], data: bytes = b"", quant: tuple | None = None) -> int:
        tensor = schema.TensorT()
        tensor.name = f"t{len(self.graph.tensors)}".encode()
        tensor.type, tensor.shape = TYPES[kind], list(shape)
        if data:
            tensor.buffer = len(self.model.buffers)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data, np.uint8)
            self.model.buffers.append(buffer)
        if quant:
            tensor.quantization = schema.QuantizationParametersT()
            (
                tensor.quantization.scale,
                tensor.quantization.zeroPoint,
                tensor.quantization.quantizedDimension,
            ) = quant
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, array: np.ndarray) -> int:
        return self.add("<i4", array.shape, array.astype("<i4").tobytes())

    def round_to_half(self, tensor: int) -> int:
        """A tensor of 32 bits whose values 16 bits hold."""
        shape = tuple(self.graph.tensors[tensor].shape)
        half, rounded = self.add("<f2", shape), self.add("<f4", shape)
        self.call("CAST", [tensor], [half])
        self.call("CAST", [half], [rounded])
        return rounded

    def call(
        self, name: str, inputs: list[int], outputs: list[int], options: str = "", **values: object
    ) -> None:
        code, operator = schema.OperatorCodeT(), schema.OperatorT()
        number = getattr(schema.BuiltinOperator, name)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        operator.opcodeIndex = len(self.model.operatorCodes)
        self.model.operatorCodes.append(code)
        operator.inputs, operator.outputs = inputs, outputs
        if options:
            operator.builtinOptions = getattr(schema, options + "T")()
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            for key, value in values.items():
                assert hasattr(operator.builtinOptions, key), key
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)

    def finish(self, inputs: list[int]) -> bytes:
        self.graph.inputs = inputs
        self.graph.outputs = [self.tensor(i) for i in self.network.outputs]
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
