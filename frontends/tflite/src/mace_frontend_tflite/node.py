"""The node of a TensorFlow Lite graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mace_core.attributes import AttributeValues
from mace_core.graph_builder import Builder
from mace_core.importer import OperandNode
from mace_core.ir import Array, DType, Quant, Shape, Storage, Tensor
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.op import Op
from mace_core.quantization import STORED
from mace_frontend_tflite.fused_activation import FUNCTIONS, clamp_bounds, is_within
from mace_frontend_tflite.importer import GraphScope, TfliteImporter
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo


@dataclass(frozen=True)
class TfliteNode(OperandNode):
    """An operator in the scope of its graph.

    Tensors of the file store real numbers as integers where they have a scale; an operator computes with the
    real numbers. `input` gives a constant as floats to an operator whose results are floats, as hybrid
    kernels do it; `stored_input` gives every tensor as the file has it.
    """

    remake: ClassVar[str] = "convert"

    operator: Operator
    scope: GraphScope
    importer: TfliteImporter

    @property
    def op(self) -> str:
        """Its operator, by its name in the schema."""
        return self.operator.code

    @property
    def graph(self) -> Subgraph:
        """The graph that it is a node of."""
        return self.scope.graph

    @property
    def builder(self) -> Builder:
        """The builder of the IR's graph."""
        return self.importer.builder

    @property
    def name(self) -> str:
        """The name of its first output, which stands in errors and in the names of its nodes."""
        # The format gives operators no names; users know a layer by the tensor that it computes.
        if self.has_output(0):
            return self.graph.tensors[self.operator.outputs[0]].name
        return f"{self.operator.code}_{self.operator.index}"

    def options(self, kind: str) -> Any:
        """Return its options; defaults if the file has none of this kind."""
        return self.operator.options(kind)

    def require_consistent(self, condition: bool, text: str) -> None:
        """Raise RefusedError unless the numbers of the node agree, as they do in undamaged files."""
        self.refuse_unless(condition, f"{text}; convert the model again")

    def require_supported(self, condition: bool, text: str) -> None:
        """Raise RefusedError unless the IR can express this form of the node."""
        remedy = "cut the graph before it with output_tensors"
        self.refuse_unless(condition, f"{text}, which is not supported; {remedy}")

    @property
    def count(self) -> int:
        """The number of inputs that it lists, absent ones included."""
        return len(self.operator.inputs)

    def has(self, index: int) -> bool:
        """Tell whether input `index` is present."""
        return index < self.count and self.operator.inputs[index] >= 0

    def info(self, index: int) -> TensorInfo:
        """Return the file's description of input `index`; RefusedError if it is absent."""
        self.refuse_unless(self.has(index), f"it has no input {index}; convert the model again")
        return self.graph.tensors[self.operator.inputs[index]]

    def output(self, index: int = 0) -> TensorInfo:
        """Return the file's description of output `index`; RefusedError if it is absent."""
        self.refuse_unless(self.has_output(index), f"it has no output {index}; convert the model again")
        return self.graph.tensors[self.operator.outputs[index]]

    def has_output(self, index: int) -> bool:
        """Tell whether output `index` is present."""
        return index < len(self.operator.outputs) and self.operator.outputs[index] >= 0

    def input(self, index: int) -> str:
        """Return the tensor at input `index`, "" if it is absent.

        A quantized constant of a node that computes floats is dequantized.
        """
        if not self.has(index):
            return ""
        return self._dequantize_weights(self.stored_input(index))

    def stored_input(self, index: int) -> str:
        """Return the tensor at input `index` as the file stores it."""
        return self.importer.tensor(self.scope, self.info(index).index)

    def _dequantize_weights(self, tensor: str) -> str:
        """Return a tensor; a quantized constant as floats if the node computes floats.

        LiteRT's hybrid kernels also quantize the activations to 8 bits at run time; that loss is not
        imitated.
        """
        if tensor not in self.builder.weights or not self.tensor(tensor).quant:
            return tensor
        results = [self.graph.tensors[output] for output in self.operator.outputs if output >= 0]
        if any(result.dtype is DType.F32 for result in results):
            return self.emit("Dequantize", [tensor], tag="floats")
        return tensor

    def stored_integers(self, index: int) -> str:
        """Return the tensor at input `index`; if it is quantized, the integers that stand for its numbers."""
        tensor = self.stored_input(index)
        quantized = self.tensor(tensor)
        if quantized.quant is None:
            return tensor
        if tensor in self.builder.weights:
            return self.add_constant(self.builder.weights[tensor], tag="integers")
        self.refuse_unless(
            quantized.quant.axis is None,
            "it reads the integers of a tensor with several scales; convert the model with one scale for it",
        )
        # No op of the IR takes the scale off a tensor, so the integers are computed from the real numbers:
        # exact, because a quantized number divided by its scale is an integer but for rounding.
        scale = self.add_constant(np.float32(quantized.quant.scale[0]), tag="scale")
        zero = self.add_constant(np.float32(quantized.quant.zero_point[0]), tag="scale")
        steps = self.emit("Div", [self.emit("Dequantize", [tensor], tag="real"), scale], tag="steps")
        rounded = self.emit("Round", [self.emit("Add", [steps, zero], tag="shifted")], tag="rounded")
        return self.emit("Cast", [rounded], {"to": quantized.dtype.value}, tag="integers")

    def set_state(self, index: int, tensor: str) -> None:
        """Set the value that the state at input `index` has after the node."""
        shape = self.shape(index)
        if self.tensor(tensor).shape != shape:
            tensor = self.emit("Reshape", [tensor], {"shape": shape}, tag="after")
        number = self.info(index).index
        self.importer.states[self.graph.index, number] = tensor
        # Where the graph is cut at the state, an operator behind this one reads the value after this node.
        if number in self.scope.values:
            self.scope.values[number] = tensor

    def inputs(self) -> list[str]:
        """Return all tensors that it reads."""
        return [self.input(i) for i in range(self.count)]

    def tensor(self, name: str) -> Tensor:
        """Return the description of a tensor of the IR's graph."""
        return self.builder.tensors[name]

    def shape(self, index: int) -> Shape:
        """Return the shape of input `index`."""
        return self.tensor(self.stored_input(index)).shape

    def array(self, index: int) -> Array | None:
        """Return the stored elements of input `index`; None unless it is a constant."""
        return self.builder.weights.get(self.stored_input(index)) if self.has(index) else None

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; RefusedError if there is none such."""
        # LiteRT takes a scalar for a tensor of one axis.
        rank = max(rank, 1)
        self.require_consistent(-rank <= axis < rank, f"it names axis {axis} of a tensor of rank {rank}")
        return axis % rank

    def inner_name(self, tag: str) -> str:
        """Return a name that was not returned before, so that each iteration of a loop has its own."""
        return self.importer.stem(f"{self.name}/{tag}")

    def add_stored(self, array: Array, quant: Quant | None, tag: str) -> str:
        """Add a constant of this node's own that stores real numbers as integers; return its tensor."""
        return self.builder.weight(self.inner_name(tag), array, quant)

    def transpose_input(self, index: int, perm: Sequence[int]) -> str:
        """Return input `index` with its axes reordered.

        A quantized constant is reordered before it is dequantized: so it stays a constant of few bytes.
        """
        transposed = self.emit("Transpose", [self.stored_input(index)], {"perm": tuple(perm)}, tag="permuted")
        return self._dequantize_weights(transposed)

    def emit(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        tag: str = "",
        storage: Storage | None = None,
    ) -> str:
        """Add an IR node whose one result stays inside."""
        stem = self.inner_name(tag or "inner")
        name = self.builder.reserve_output(stem, storage)
        return self.add(op, inputs, attrs, [name], self.origin_of(stem))[0]

    def emit_tagged(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], tags: Sequence[str]
    ) -> tuple[str, ...]:
        """Add an IR node whose results, one for each tag, stay inside."""
        names = [self.builder.fresh(self.inner_name(tag)) for tag in tags]
        return self.add(op, inputs, attrs, names, self.origin_of(self.inner_name(op)))

    def storage(self, index: int = 0) -> Storage | None:
        """Return how output `index` stores real numbers; None for floats and plain integers."""
        info = self.output(index)
        return Storage(info.dtype, info.quant) if info.quant and info.dtype in STORED else None

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return names for its outputs, stored as the file says, and for outputs that only the op has."""
        listed, several = len(self.operator.outputs), bool(op.outputs) and op.outputs[-1].endswith("*")
        reserved, names = self.builder.reserved, []
        for i in range(listed if several else len(op.outputs)):
            known = self.has_output(i)
            stem = self.importer.stem(self.output(i).name if known else f"{self.name}/unused")
            names.append(self.builder.reserve_output(stem, self.storage(i) if known else None))
            # Two outputs may have one name in the file; the first is not given to the second.
            self.builder.reserved |= {names[-1]}
        self.builder.reserved = reserved
        return names

    def done(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        count: int | None = None,
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's outputs, under their names, stored as the file says."""
        op = self.builder.ops[op] if isinstance(op, str) else op
        names = self.output_names(op, count)
        return self.add(op, inputs, attrs, names, self.origin_of(self.importer.stem(self.name)))

    def done_with_activation(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], function: int
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, with its fused activation.

        function: the number of the activation in the schema.
        """
        bounds, storage = clamp_bounds(function), self.storage()
        if bounds is None:
            self.require_supported(function in FUNCTIONS, f"it has fused activation {function}")
            return self.done(FUNCTIONS[function], [self.emit(op, inputs, attrs)])
        # Integers saturate at the ends of their range, which a converter chose as the bounds of the
        # activation.
        if is_within(storage, *bounds):
            return self.done(op, inputs, attrs)
        if issubclass(self.builder.ops[op].attrs, ClampAttributes):
            return self.done(op, inputs, {**attrs, "low": bounds[0], "high": bounds[1]})
        result = self.emit(op, inputs, attrs, storage=storage)
        return self.done("Clip", [result], {"min": bounds[0], "max": bounds[1]})
