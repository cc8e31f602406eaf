"""Small models written as files: what the frontend, and targets behind it, are tested with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import flatbuffers
import numpy as np
import tflite

from mace_core.ir import Array, DType, Shape
from mace_frontend_tflite.schema import BUILTINS, DTYPES

TYPES: Mapping[DType, int] = MappingProxyType({dtype: code for code, dtype in DTYPES.items()})
CODES: Mapping[str, int] = MappingProxyType({name: code for code, name in BUILTINS.items()})
EXTENDED = 127
"""From this code on, operators have their code in a field of its own, and this in the old one."""

ALIGNMENT = 16
"""Bytes; where constants begin."""

TableFields = Mapping[str, Any]
"""Fields of a table by the schema's names in camel case: numbers, and vectors of them."""


@dataclass(frozen=True)
class Scales:
    """How a tensor's integers stand for real numbers; details: the kind of a table that says more."""

    scale: Sequence[float]
    zero_point: Sequence[int]
    axis: int = 0
    details: int = 0


@dataclass(frozen=True)
class Sparsity:
    """Which elements a constant holds: for every traversed dimension a dense size, or segments and indices."""

    order: Sequence[int]
    blocks: Sequence[int]
    dimensions: Sequence[int | tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Value:
    """A tensor of the file.

    data: of a constant.  signature: its shape with -1 for what is open.  kind: another type than `dtype`.
    """

    name: str
    dtype: DType = DType.F32
    shape: Shape = ()
    data: Array | None = None
    scales: Scales | None = None
    signature: Shape = ()
    variable: bool = False
    sparsity: Sparsity | None = None
    kind: int | None = None

    @classmethod
    def constant(cls, name: str, array: Array, scales: Scales | None = None) -> Value:
        """A constant with these elements."""
        return cls(name, DType.of(array), array.shape, array, scales)


@dataclass(frozen=True)
class Step:
    """An operator: a builtin's name, or "custom NAME"; its tensors by name, "" for an absent one.

    Its options.
    """

    code: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: tuple[str, TableFields] | None = None
    intermediates: Sequence[str] = ()
    custom: bytes = b""
    version: int = 1
    custom_offset: int = 0


@dataclass(frozen=True)
class Written:
    """A graph of the file."""

    values: Sequence[Value]
    steps: Sequence[Step]
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = "main"


@dataclass
class _Writer:
    """A file on its way.

    `buffers` holds the data of its constants, the first one empty as the format wants it.
    """

    build: Any = field(default_factory=lambda: flatbuffers.Builder(1024))
    buffers: list[bytes] = field(default_factory=lambda: [b""])
    codes: list[tuple[str, int]] = field(default_factory=list)

    def table(self, kind: str, fields: TableFields) -> int:
        """Write a table; what it refers to is there already or written before it."""
        ready = {key: self._ready(value) for key, value in fields.items() if value is not None}
        getattr(tflite, f"{kind}Start")(self.build)
        for key, value in ready.items():
            getattr(tflite, f"{kind}Add{key}")(self.build, value)
        return int(getattr(tflite, f"{kind}End")(self.build))

    def _ready(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.build.CreateString(value)
        if isinstance(value, bytes):
            self.build.StartVector(1, len(value), ALIGNMENT)
            self.build.head -= len(value)
            self.build.Bytes[self.build.head : self.build.head + len(value)] = value
            return self.build.EndVector()
        return self.build.CreateNumpyVector(value) if isinstance(value, np.ndarray) else value

    def tables(self, offsets: Sequence[int]) -> int:
        """Write a vector of tables."""
        self.build.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.build.PrependUOffsetTRelative(offset)
        return int(self.build.EndVector())

    def value(self, value: Value) -> int:
        """Write a tensor."""
        if value.data is not None:
            self.buffers.append(np.ascontiguousarray(value.data).tobytes())
        scales, sparsity = value.scales, value.sparsity
        quant = scales and self.table(
            "QuantizationParameters",
            {
                "Scale": np.asarray(scales.scale, np.float32),
                "ZeroPoint": np.asarray(scales.zero_point, np.int64),
                "QuantizedDimension": scales.axis,
                "DetailsType": scales.details or None,
            },
        )
        fields = {
            "Shape": np.asarray(value.shape, np.int32),
            "Type": TYPES[value.dtype] if value.kind is None else value.kind,
            "Buffer": len(self.buffers) - 1 if value.data is not None else 0,
            "Name": value.name,
            "Quantization": quant,
            "IsVariable": value.variable or None,
            "Sparsity": sparsity and self._sparsity(sparsity),
            "ShapeSignature": np.asarray(value.signature, np.int32) if value.signature else None,
        }
        return self.table("Tensor", fields)

    def _sparsity(self, sparsity: Sparsity) -> int:
        dimensions = []
        for given in sparsity.dimensions:
            if isinstance(given, int):
                dimensions.append(
                    self.table(
                        "DimensionMetadata", {"Format": tflite.DimensionType.DENSE, "DenseSize": given}
                    )
                )
                continue
            fields: dict[str, Any] = {"Format": tflite.DimensionType.SPARSE_CSR}
            for key, values in zip(("ArraySegments", "ArrayIndices"), given, strict=True):
                fields[f"{key}Type"] = tflite.SparseIndexVector.Int32Vector
                fields[key] = self.table("Int32Vector", {"Values": np.asarray(values, np.int32)})
            dimensions.append(self.table("DimensionMetadata", fields))
        orders = {
            "TraversalOrder": np.asarray(sparsity.order, np.int32),
            "BlockMap": np.asarray(sparsity.blocks, np.int32),
        }
        return self.table("SparsityParameters", {**orders, "DimMetadata": self.tables(dimensions)})

    def step(self, step: Step, places: Mapping[str, int]) -> int:
        """Write an operator; places: tensors' indices by name."""
        code = (step.code, step.version)
        if code not in self.codes:
            self.codes.append(code)
        fields: dict[str, Any] = {"OpcodeIndex": self.codes.index(code)}
        for key, names in (
            ("Inputs", step.inputs),
            ("Outputs", step.outputs),
            ("Intermediates", step.intermediates),
        ):
            fields[key] = np.asarray([places[n] for n in names], np.int32)
        if step.options:
            kind, given = step.options
            second = hasattr(tflite.BuiltinOptions2, kind)
            union = tflite.BuiltinOptions2 if second else tflite.BuiltinOptions
            fields[f"BuiltinOptions{'2' * second}Type"] = getattr(union, kind)
            fields[f"BuiltinOptions{'2' * second}"] = self.table(kind, given)
        if step.custom:
            fields["CustomOptions"] = step.custom
        fields["LargeCustomOptionsOffset"] = step.custom_offset or None
        return self.table("Operator", fields)

    def graph(self, graph: Written) -> int:
        """Write a graph."""
        places = {"": -1, **{value.name: i for i, value in enumerate(graph.values)}}
        fields = {
            "Tensors": self.tables([self.value(v) for v in graph.values]),
            "Operators": self.tables([self.step(s, places) for s in graph.steps]),
            "Inputs": np.asarray([places[n] for n in graph.inputs], np.int32),
            "Outputs": np.asarray([places[n] for n in graph.outputs], np.int32),
            "Name": graph.name,
        }
        return self.table("SubGraph", fields)

    def code(self, code: str, version: int) -> int:
        """Write an operator's code."""
        number = CODES["CUSTOM" if code.startswith("custom ") else code]
        name = code.removeprefix("custom ") if code.startswith("custom ") else None
        old = min(number, EXTENDED)
        return self.table(
            "OperatorCode",
            {"DeprecatedBuiltinCode": old, "BuiltinCode": number, "Version": version, "CustomCode": name},
        )


def write(*graphs: Written, signatures: Mapping[str, int] = MappingProxyType({})) -> bytes:
    """The file of a model with these graphs, the first of which is run.

    signatures: name -> the number of its graph.
    """
    writer = _Writer()
    fields: dict[str, Any] = {"Version": 3, "Subgraphs": writer.tables([writer.graph(g) for g in graphs])}
    fields["OperatorCodes"] = writer.tables([writer.code(*c) for c in writer.codes])
    fields["Buffers"] = writer.tables(
        [writer.table("Buffer", {"Data": data or None}) for data in writer.buffers]
    )
    if signatures:
        defs = [{"SignatureKey": name, "SubgraphIndex": graph} for name, graph in signatures.items()]
        fields["SignatureDefs"] = writer.tables([writer.table("SignatureDef", each) for each in defs])
    model = writer.table("Model", fields)
    writer.build.Finish(model, b"TFL3")
    return bytes(writer.build.Output())
