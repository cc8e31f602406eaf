"""Grows graphs node by node, calibrated on random data so that results fill their types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from writer_oracle import real

from mace_core.attributes import AttributeValues
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Shape, Storage, Tensor
from mace_core.quantization import quantize
from mace_tflite_writer import refuses

FIXED: Mapping[str, Mapping[DType, tuple[float, int]]] = MappingProxyType(
    {
        "Softmax": {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)},
        "LogSoftmax": {DType.I8: (1 / 16, 127), DType.U8: (1 / 16, 255)},
        "Sigmoid": {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)},
        "Tanh": {DType.I8: (1 / 128, 0), DType.U8: (1 / 128, 128), DType.I16: (1 / 32768, 0)},
    }
)
"""Ops whose results have one scale and zero point in the format."""

KEEPING = ("AveragePool", "Maximum", "Minimum", "Resize", "ReduceMax", "ReduceMin")
"""Ops beside those that move data whose results have the storage of their input."""


class Grower:
    """A graph that grows node by node, with a sample of the elements of every tensor.

    quantized: how its real numbers are stored; None for plain elements.
    """

    def __init__(self, seed: int, dtype: DType, quantized: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = Builder(f"case{seed}")
        self.dtype, self.quantized = dtype, quantized
        self.samples: dict[str, Array] = {}
        self.is_wild = False  # whether nodes that the format does not state are kept

    def tensor(self, name: str) -> Tensor:
        return self.builder.tensors[name]

    def numbers(self, shape: Shape) -> Array:
        """Real numbers, or plain integers, for an input or a constant."""
        if self.quantized or self.dtype.is_float:
            return self.random.normal(size=shape)
        if self.dtype is DType.BOOL:
            return self.random.integers(0, 2, shape).astype(bool)
        low = 0 if self.dtype is DType.U8 else -99
        return self.random.integers(low, 100, shape)

    def storage(self, values: Array) -> Storage | None:
        """A storage whose integers these values fill; None for plain elements."""
        if not self.quantized:
            return None
        limits = np.iinfo(self.dtype.numpy)
        low, high = (
            float(min(values.min(initial=0), 0)),
            float(max(values.max(initial=0), 0, low_limit(values))),
        )
        if self.dtype is DType.I16:
            return Storage(self.dtype, Quant.of(float(np.float32(max(-low, high) / limits.max))))
        scale = float(np.float32((high - low) / (limits.max - limits.min)))
        return Storage(
            self.dtype, Quant.of(scale, int(np.clip(round(limits.min - low / scale), limits.min, limits.max)))
        )

    def input(self, shape: Shape) -> str:
        values = self.numbers(shape)
        storage = self.storage(values)
        name = self.builder.input(
            f"in{len(self.builder.inputs)}", self.dtype, shape, storage and storage.quant
        )
        self.samples[name] = quantize(values, storage) if storage else values.astype(self.dtype.numpy)
        return name

    def constant(self, values: Array, storage: Storage | None = None) -> str:
        storage = storage or self.storage(values)
        array = quantize(values, storage) if storage else np.asarray(values, self.dtype.numpy)
        name = self.builder.weight("constant", array, storage and storage.quant)
        self.samples[name] = array
        return name

    def operand(self, shape: Shape) -> str:
        """A second operand: a constant or an input of the model."""
        return self.input(shape) if self.random.random() < 0.5 else self.constant(self.numbers(shape))

    def weights(self, shape: Shape, axis: int) -> str:
        """Weights as products of this type take them; axis: that of the results."""
        values = self.random.normal(size=shape) / math.sqrt(math.prod(shape) / shape[axis])
        if not self.quantized:
            return self.constant(values)
        if self.dtype is DType.U8:
            return self.constant(values)
        per_channel = self.random.random() < 0.7
        axes = tuple(i for i in range(len(shape)) if i != axis) if per_channel else None
        largest = np.maximum(np.abs(values).max(axis=axes), 1e-3)
        scales = tuple(float(np.float32(v / 127)) for v in np.atleast_1d(largest))
        return self.constant(
            values, Storage(DType.I8, Quant(scales, (0,) * len(scales), axis if per_channel else None))
        )

    def bias(self, x: str, w: str, count: int) -> str:
        values = self.random.normal(size=count)
        if not self.quantized:
            return self.constant(values)
        quants = (self.tensor(x).quant, self.tensor(w).quant)
        assert quants[0] is not None
        assert quants[1] is not None
        scales = tuple(float(np.float32(quants[0].scale[0]) * np.float32(s)) for s in quants[1].scale)
        axis = None if quants[1].axis is None else 0
        return self.constant(values, Storage(DType.I32, Quant(scales, (0,) * len(scales), axis)))

    def add(self, op: str, inputs: Sequence[str], attrs: AttributeValues | None = None) -> str | None:
        """Add a node and return its first output; None if the IR or the format has none such."""
        builder = self.builder
        kind = builder.ops[op]
        try:
            complete = kind.complete(attrs or {})
            kind.infer([self.tensor(i).real if i else None for i in inputs], complete)
        except ValueError:
            return None
        reals = [real(self.tensor(i), self.samples[i]) if i else None for i in inputs]
        results = kind.compute(reals, complete)
        if not all(np.isfinite(values).all() for values in results):
            return None
        names = []
        for values in results:
            keeps = (kind.moves or op in KEEPING) and not (self.is_wild and self.random.random() < 0.3)
            storage = self.tensor(inputs[0]).storage if keeps else self.storage(values)
            if storage and op in FIXED and self.dtype in FIXED[op]:
                scale, zero_point = FIXED[op][self.dtype]
                storage = Storage(self.dtype, Quant.of(scale, zero_point))
            names.append(builder.reserve_output(f"t{len(builder.nodes)}.{len(names)}", storage))
        try:
            builder.add(kind, inputs, complete, outputs=names)
        except MaceError:
            return None
        node = builder.nodes[-1]
        view = Graph(builder.name, (node,), builder.tensors, builder.weights, (), ())
        if not self.is_wild and refuses(node, view):
            builder.nodes.pop()
            return None
        for name, values in zip(names, results, strict=True):
            storage = self.tensor(name).storage
            self.samples[name] = (
                quantize(values, storage) if storage else values.astype(self.tensor(name).dtype.numpy)
            )
        return names[0]

    def finish(self) -> Graph:
        """The graph of all nodes; its outputs are those that no node reads."""
        read = {name for node in self.builder.nodes for name in node.inputs}
        results = [name for node in self.builder.nodes for name in node.outputs]
        return self.builder.finish([name for name in results if name not in read])

    def inputs(self, graph: Graph) -> list[Array]:
        return [self.samples[name] for name in graph.inputs]


def low_limit(values: Array) -> float:
    return 1e-3 if not np.abs(values).max(initial=0) else 0.0
