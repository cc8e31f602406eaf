"""One node of a TensorFlow Lite graph as its handler sees it."""

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
from mace_frontend_tflite.fused_activation import FUSED, is_within, limits
from mace_frontend_tflite.importer import GraphScope, TfliteImporter
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo


@dataclass(frozen=True)
class TfliteNode(OperandNode):
    """An operator in the scope of its graph."""

    remake: ClassVar[str] = "convert"

    operator: Operator
    scope: GraphScope
    importer: TfliteImporter

    @property
    def op(self) -> str:
        """Its operator, as the schema calls it."""
        return self.operator.code

    @property
    def graph(self) -> Subgraph:
        """The graph that it is a node of."""
        return self.scope.graph

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    @property
    def name(self) -> str:
        """What its errors and nodes are called by: its first output."""
        outputs = self.operator.outputs
        return (
            self.graph.tensors[outputs[0]].name
            if outputs and outputs[0] >= 0
            else f"{self.operator.code}_{self.operator.index}"
        )

    def options(self, kind: str) -> Any:
        """Its options; defaults if the file has none of this kind."""
        return self.operator.options(kind)

    @property
    def count(self) -> int:
        """How many inputs it lists."""
        return len(self.operator.inputs)

    def has(self, index: int) -> bool:
        """Whether input `index` is there."""
        return index < self.count and self.operator.inputs[index] >= 0

    def info(self, index: int) -> TensorInfo:
        """The file's description of input `index`; RefusedError if it is absent."""
        self.refuse_unless(self.has(index), f"it has no input {index}; convert the model again")
        return self.graph.tensors[self.operator.inputs[index]]

    def output(self, index: int = 0) -> TensorInfo:
        """The file's description of output `index`."""
        self.refuse_unless(self.has_output(index), f"it has no output {index}; convert the model again")
        return self.graph.tensors[self.operator.outputs[index]]

    def has_output(self, index: int) -> bool:
        """Whether output `index` is there."""
        return index < len(self.operator.outputs) and self.operator.outputs[index] >= 0

    def input(self, index: int) -> str:
        """The tensor at input `index`, "" if it is absent.

        Stored weights of a node that computes floats as floats.
        """
        if not self.has(index):
            return ""
        return self._floats(self.stored(index))

    def stored(self, index: int) -> str:
        """The tensor at input `index` as it is stored."""
        return self.importer.tensor(self.scope, self.info(index).index)

    def _floats(self, tensor: str) -> str:
        """A tensor; a stored constant as floats if the node computes floats."""
        results = [self.graph.tensors[o] for o in self.operator.outputs if o >= 0]
        compressed = (
            tensor in self.builder.weights
            and self.tensor(tensor).quant
            and any(r.dtype is DType.F32 for r in results)
        )
        return self.emit("Dequantize", [tensor], tag="floats") if compressed else tensor

    def stored_integers(self, index: int) -> str:
        """The tensor at input `index`, as the integers that it stores if it stores real numbers."""
        tensor = self.stored(index)
        held = self.tensor(tensor)
        if held.quant is None:
            return tensor
        if tensor in self.builder.weights:
            return self.add_constant(self.builder.weights[tensor], tag="integers")
        self.refuse_unless(held.quant.axis is None, "the integers of a tensor with several scales")
        scale, zero = (
            self.add_constant(np.float32(v[0]), tag="scale")
            for v in (held.quant.scale, held.quant.zero_point)
        )
        steps = self.emit("Div", [self.emit("Dequantize", [tensor], tag="real"), scale], tag="steps")
        rounded = self.emit("Round", [self.emit("Add", [steps, zero], tag="shifted")], tag="rounded")
        return self.emit("Cast", [rounded], {"to": held.dtype.value}, tag="integers")

    def set_state(self, index: int, tensor: str) -> None:
        """State what the state at input `index` is after the node."""
        shape = self.shape(index)
        made = (
            tensor
            if self.tensor(tensor).shape == shape
            else self.emit("Reshape", [tensor], {"shape": shape}, tag="after")
        )
        place = self.info(index).index
        self.importer.states[self.graph.index, place] = made
        # The graph is cut at the state: who reads it after this node reads what the node leaves.
        if place in self.scope.values:
            self.scope.values[place] = made

    def inputs(self) -> list[str]:
        """All its tensors."""
        return [self.input(i) for i in range(self.count)]

    def tensor(self, name: str) -> Tensor:
        """A tensor of the graph that is being made."""
        return self.builder.tensors[name]

    def shape(self, index: int) -> Shape:
        """Shape of input `index`."""
        return self.tensor(self.stored(index)).shape

    def array(self, index: int) -> Array | None:
        """The stored elements of input `index` if it is a constant."""
        return self.builder.weights.get(self.stored(index)) if self.has(index) else None

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        return super().axis(axis, max(rank, 1))  # a single number counts as one of one axis

    def inner_name(self, tag: str) -> str:
        """Return a name that was not asked for before, so that each iteration of a loop has its own."""
        return self.importer.stem(f"{self.name}/{tag}")

    def add_stored(self, array: Array, quant: Quant | None, tag: str) -> str:
        """Add a constant of this node's own that stores real numbers as integers; return its tensor."""
        return self.builder.weight(self.inner_name(tag), array, quant)

    def permuted(self, index: int, perm: Sequence[int]) -> str:
        """Input `index` with its axes reordered: before it becomes floats, so that a constant is reordered at once."""
        return self._floats(
            self.emit("Transpose", [self.stored(index)], {"perm": tuple(perm)}, tag="permuted")
        )

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
        name = self.builder.stored(stem, storage)
        return self.add(op, inputs, attrs, [name], self.origin_of(stem))[0]

    def emit_tagged(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], tags: Sequence[str]
    ) -> tuple[str, ...]:
        """Add an IR node whose results, one for each tag, stay inside."""
        names = [self.builder.fresh(self.inner_name(tag)) for tag in tags]
        return self.add(op, inputs, attrs, names, self.origin_of(self.inner_name(op)))

    def storage(self, index: int = 0) -> Storage | None:
        """How output `index` stores real numbers; None for floats and plain integers."""
        info = self.output(index)
        return Storage(info.dtype, info.quant) if info.quant and info.dtype in STORED else None

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for its outputs, each stored as the file says; what the op computes besides gets a name as well."""
        listed, several = len(self.operator.outputs), bool(op.outputs) and op.outputs[-1].endswith("*")
        reserved, names = self.builder.reserved, []
        for i in range(listed if several else len(op.outputs)):
            known = self.has_output(i)
            stem = self.importer.stem(self.output(i).name if known else f"{self.name}/unused")
            names.append(self.builder.stored(stem, self.storage(i) if known else None))
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
        """Add the IR node that computes this node's outputs, under their names and stored as the file says."""
        op = self.builder.ops[op] if isinstance(op, str) else op
        names = self.output_names(op, count)
        return self.add(op, inputs, attrs, names, self.origin_of(self.importer.stem(self.name)))

    def fused(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], function: int
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, and its fused activation."""
        bounds, how = limits(function), self.storage()
        if bounds is None:
            self.refuse_unless(function in FUSED, f"fused activation {function} is not supported")
            return self.done(FUSED[function], [self.emit(op, inputs, attrs)])
        if is_within(how, *bounds):
            return self.done(op, inputs, attrs)
        if issubclass(self.builder.ops[op].attrs, ClampAttributes):
            return self.done(op, inputs, {**attrs, "low": bounds[0], "high": bounds[1]})
        return self.done(
            "Clip", [self.emit(op, inputs, attrs, storage=how)], {"min": bounds[0], "max": bounds[1]}
        )
