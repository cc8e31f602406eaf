"""Writes a graph as a file: an operator for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import tflite

from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Graph, Node, Quant, Shape, Tensor
from mace_core.lowering import Refused
from mace_core.refusal import Refusal
from mace_tflite_writer.flatbuffer import Encoder
from mace_tflite_writer.names import file_names
from mace_tflite_writer.operator import BuiltinOperator, NodeView, Operand, OperatorOptions
from mace_tflite_writer.operators import statements
from mace_tflite_writer.schema import (
    CODES,
    FILE_VERSION,
    LAST_SHORT_CODE,
    MAX_BYTES,
    MAX_DIMENSION,
    SCALE_TOLERANCE,
    TYPES,
)


def refuses(node: Node, graph: Graph) -> Refusal | None:
    """Return None where one operator of the format computes just what the node does, with these tensors.

    Otherwise the reason, and as its remedy the rewrite that helps where there is one.
    """
    try:
        state(node, graph)
    except Refused as refused:
        return refused.refusal
    return None


def state(node: Node, graph: Graph) -> BuiltinOperator:
    """Return the operator that computes a node; raises Refused if there is none."""
    for tensor in (*graph.inputs_of(node), *graph.outputs_of(node)):
        if tensor is not None and max(tensor.shape, default=0) > MAX_DIMENSION:
            raise Refused(
                f"{tensor.name!r} has a dimension above {MAX_DIMENSION}, the largest of the format",
                code="too-large",
            )
        if tensor is not None and tensor.quant is not None:
            _check_quantization(tensor)
    statement = statements().get(node.op.name)
    if statement is None:
        raise Refused(
            f"the format has no operator for {node.op.name}",
            code="unsupported-op",
            remedy="give the node to another target",
        )
    return statement(NodeView(node, graph))


def _check_quantization(tensor: Tensor) -> None:
    """Raise Refused for scales beyond single precision, and zero points of 16 bits, which kernels ignore."""
    assert tensor.quant is not None
    exact = np.asarray(tensor.quant.scale, np.float64)
    # Beyond the range of single precision the difference is not a number, or that to infinity.
    with np.errstate(over="ignore"):
        stated = exact.astype(np.float32).astype(np.float64)
    if not bool(np.all(np.abs(stated - exact) <= SCALE_TOLERANCE * exact)):
        raise Refused(
            f"{tensor.name!r} has a scale that single precision, the format's own, cannot hold",
            code="quantization",
            remedy="quantize the model with scales of ordinary size",
        )
    if tensor.dtype is DType.I16 and any(tensor.quant.zero_point):
        raise Refused(
            f"{tensor.name!r} stores 16 bits with a zero point other than 0, which kernels ignore",
            code="quantization",
            remedy="quantize it symmetrically",
        )


def write_tflite(graph: Graph) -> bytes:
    """Return a complete file that computes the graph.

    The same graph gives the same bytes. Inputs and outputs keep their order, and their names (but for what
    `file_names` changes). MaceError with every node that has no operator.
    """
    faults: list[str] = []
    operators: list[BuiltinOperator] = []
    for node in graph.nodes:
        try:
            operators.append(state(node, graph))
        except Refused as refused:
            faults.append(
                str(MaceError(f"{graph.name}: node {node.name!r} ({node.op.name})", str(refused.refusal)))
            )
    faults += _faults_of_ports(graph)
    if faults:
        raise MaceError.of(faults)
    return _File(graph).encode(operators)


def _faults_of_ports(graph: Graph) -> list[str]:
    """Return what is wrong with the graph's own inputs and outputs."""
    computed = set(chain.from_iterable(node.outputs for node in graph.nodes))
    return [
        str(
            MaceError(
                f"{graph.name}: output {name!r}",
                "no node computes it; a file's output is an operator's",
                "put an Identity behind it",
            )
        )
        for name in graph.outputs
        if name not in computed
    ]


@dataclass
class _File:
    """A file under construction: its tensors in order, and the constants of its buffers."""

    graph: Graph
    encoder: Encoder = field(default_factory=Encoder)
    tensors: list[int] = field(default_factory=list)
    indices: dict[str, int] = field(default_factory=dict)
    # The first buffer is empty by definition: tensors without data refer to it.
    buffers: list[bytes] = field(default_factory=lambda: [b""])
    bytes_of_buffers: int = 0
    numbers_of_buffers: dict[bytes, int] = field(default_factory=dict)
    codes: list[tuple[str, int]] = field(default_factory=list)
    names: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = file_names(self.graph)

    def encode(self, operators: list[BuiltinOperator]) -> bytes:
        """Return the bytes of the file."""
        # Before the operators: an input that none of them reads must be among the tensors as well.
        for name in self.graph.inputs:
            self._index(name)
        tables = [self._operator(operator) for operator in operators]
        subgraph = self.encoder.table(
            "SubGraph",
            {
                "Tensors": self.encoder.vector(self.tensors),
                "Operators": self.encoder.vector(tables),
                "Inputs": self._indices(self.graph.inputs),
                "Outputs": self._indices(self.graph.outputs),
                "Name": "main",
            },
        )
        fields = {
            "Version": FILE_VERSION,
            "OperatorCodes": self.encoder.vector([self._code(*code) for code in self.codes]),
            "Subgraphs": self.encoder.vector([subgraph]),
            "Buffers": self.encoder.vector(
                [self.encoder.table("Buffer", {"Data": data or None}) for data in self.buffers]
            ),
            "Description": "MACE",
        }
        return self.encoder.finish(self.encoder.table("Model", fields))

    def _indices(self, names: tuple[str, ...]) -> Array:
        return np.asarray([self._index(name) for name in names], np.int32)

    def _index(self, name: str) -> int:
        """Return the number of a tensor of the graph; -1 for an absent one."""
        if not name:
            return -1
        if name not in self.indices:
            array = self.graph.weights.get(name)
            self.indices[name] = self._tensor(self.graph.tensors[name], self.names[name], array)
        return self.indices[name]

    def _operand(self, operand: Operand, operator: BuiltinOperator) -> int:
        if isinstance(operand, str):
            return self._index(operand)
        name = f"{self.names[operator.outputs[0]]}/{operator.code}/{operator.inputs.index(operand)}"
        array = operand.array
        described = Tensor(name, DType.of(array), array.shape, operand.quant)
        return self._tensor(described, name, array)

    def _tensor(self, tensor: Tensor, name: str, array: Array | None) -> int:
        fields = {
            "Shape": np.asarray(tensor.shape, np.int32),
            "Type": TYPES[tensor.dtype],
            "Buffer": 0 if array is None else self._buffer(array),
            "Name": name,
            "Quantization": self._quantization(tensor.quant, tensor.shape),
            # Without it a reader could take a shape of () for one that is not known.
            "HasRank": True,
        }
        self.tensors.append(self.encoder.table("Tensor", fields))
        return len(self.tensors) - 1

    def _buffer(self, array: Array) -> int:
        """Return the number of the buffer with these elements; equal ones share it."""
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        if data not in self.numbers_of_buffers:
            self.numbers_of_buffers[data] = len(self.buffers)
            self.buffers.append(data)
            self.bytes_of_buffers += len(data)
            if self.bytes_of_buffers > MAX_BYTES:
                raise MaceError(
                    self.graph.name,
                    "its constants do not fit a TensorFlow Lite file, which has at most 2 GiB",
                    "leave a part of the model to another target",
                )
        return self.numbers_of_buffers[data]

    def _quantization(self, quant: Quant | None, shape: Shape) -> int | None:
        if quant is None:
            return None
        fields = {
            "Scale": np.asarray(quant.scale, np.float32),
            "ZeroPoint": np.asarray(quant.zero_point, np.int64),
            "QuantizedDimension": quant.axis or 0,
        }
        return self.encoder.table("QuantizationParameters", fields)

    def _operator(self, operator: BuiltinOperator) -> int:
        code = (operator.code, operator.version)
        if code not in self.codes:
            self.codes.append(code)
        inputs = [self._operand(operand, operator) for operand in operator.inputs]
        fields = {
            "OpcodeIndex": self.codes.index(code),
            "Inputs": np.asarray(inputs, np.int32),
            "Outputs": self._indices(operator.outputs),
            **self._options(operator.options),
        }
        return self.encoder.table("Operator", fields)

    def _options(self, options: OperatorOptions | None) -> dict[str, int]:
        if options is None:
            return {}
        return {
            "BuiltinOptionsType": getattr(tflite.BuiltinOptions, options.table),
            "BuiltinOptions": self.encoder.table(options.table, options.fields),
        }

    def _code(self, code: str, version: int) -> int:
        number = CODES[code]
        fields = {
            "DeprecatedBuiltinCode": min(number, LAST_SHORT_CODE),
            "BuiltinCode": number,
            "Version": version,
        }
        return self.encoder.table("OperatorCode", fields)
