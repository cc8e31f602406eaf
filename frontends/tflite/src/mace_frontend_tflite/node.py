"""One node of a TensorFlow Lite graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mace_core.decompositions import Steps, apply
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Quant, Shape, Storage, Tensor
from mace_core.ir import Node as IrNode
from mace_core.ops.op import Op
from mace_core.quantization import STORED
from mace_core.translation import OperandNode
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo

if TYPE_CHECKING:
    from mace_frontend_tflite.translate import Translation


@dataclass(frozen=True)
class Node(OperandNode):
    """An operator with its place in a graph. held: the IR's tensors by the file's index."""

    again: ClassVar[str] = "convert"

    operator: Operator
    graph: Subgraph
    held: dict[int, str]
    work: Translation

    @property
    def build(self) -> Builder:
        """The graph that is being made."""
        return self.work.builder

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
        self.refuse_unless(self.makes(index), f"it has no output {index}; convert the model again")
        return self.graph.tensors[self.operator.outputs[index]]

    def makes(self, index: int) -> bool:
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
        return self.work.tensor(self.graph, self.held, self.info(index).index)

    def _floats(self, tensor: str) -> str:
        """A tensor; a stored constant as floats if the node computes floats."""
        results = [self.graph.tensors[o] for o in self.operator.outputs if o >= 0]
        compressed = (
            tensor in self.build.weights
            and self.tensor(tensor).quant
            and any(r.dtype is DType.F32 for r in results)
        )
        return self.emit("Dequantize", [tensor], tag="floats") if compressed else tensor

    def plain(self, index: int) -> str:
        """The tensor at input `index`, as the integers that it stores if it stores real numbers."""
        tensor = self.stored(index)
        held = self.tensor(tensor)
        if held.quant is None:
            return tensor
        if tensor in self.build.weights:
            return self.weight(self.build.weights[tensor], tag="integers")
        self.refuse_unless(held.quant.axis is None, "the integers of a tensor with several scales")
        scale, zero = (
            self.weight(np.float32(v[0]), tag="scale") for v in (held.quant.scale, held.quant.zero_point)
        )
        steps = self.emit("Div", [self.emit("Dequantize", [tensor], tag="real"), scale], tag="steps")
        rounded = self.emit("Round", [self.emit("Add", [steps, zero], tag="shifted")], tag="rounded")
        return self.emit("Cast", [rounded], {"to": held.dtype.value}, tag="integers")

    def leave(self, index: int, tensor: str) -> None:
        """State what the state at input `index` is after the node."""
        shape = self.shape(index)
        made = (
            tensor
            if self.tensor(tensor).shape == shape
            else self.emit("Reshape", [tensor], {"shape": shape}, tag="after")
        )
        place = self.info(index).index
        self.work.states[self.graph.index, place] = made
        # The graph is cut at the state: who reads it after this node reads what the node leaves.
        if place in self.held:
            self.held[place] = made

    def inputs(self) -> list[str]:
        """All its tensors."""
        return [self.input(i) for i in range(self.count)]

    def tensor(self, name: str) -> Tensor:
        """A tensor of the graph that is being made."""
        return self.build.tensors[name]

    def shape(self, index: int) -> Shape:
        """Shape of input `index`."""
        return self.tensor(self.stored(index)).shape

    def array(self, index: int) -> Array | None:
        """The stored elements of input `index` if it is a constant."""
        return self.build.weights.get(self.stored(index)) if self.has(index) else None

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        return super().axis(axis, max(rank, 1))  # a single number counts as one of one axis

    def weight(self, array: Array | np.generic, quant: Quant | None = None, tag: str = "constant") -> str:
        """Add a constant of this node's own."""
        return self.build.weight(self.work.stem(f"{self.name}/{tag}"), np.asarray(array), quant)

    def permuted(self, index: int, perm: Sequence[int]) -> str:
        """Input `index` with its axes reordered: before it becomes floats, so that a constant is reordered at once."""
        return self._floats(
            self.emit("Transpose", [self.stored(index)], {"perm": tuple(perm)}, tag="permuted")
        )

    def emit(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        tag: str = "",
        storage: Storage | None = None,
    ) -> str:
        """Add an IR node whose one result stays inside."""
        stem = self.work.stem(f"{self.name}/{tag or 'inner'}")
        name = self.build.stored(stem, storage)
        return self.build.add(op, inputs, attrs, outputs=[name], like=self._like(stem))[0]

    def emit_all(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], tags: Sequence[str]
    ) -> tuple[str, ...]:
        """Add an IR node whose results, one for each tag, stay inside."""
        names = [self.build.fresh(self.work.stem(f"{self.name}/{tag}")) for tag in tags]
        return self.build.add(
            op, inputs, attrs, outputs=names, like=self._like(self.work.stem(f"{self.name}/{op}"))
        )

    def _like(self, name: str) -> IrNode:
        """What a node made for it is named after."""
        return IrNode(name, self.build.ops["Identity"], (), (), sources=(self.name,))

    def storage(self, index: int = 0) -> Storage | None:
        """How output `index` stores real numbers; None for floats and plain integers."""
        info = self.output(index)
        return Storage(info.dtype, info.quant) if info.quant and info.dtype in STORED else None

    def done(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's outputs, under their names and stored as the file says."""
        op = self.build.ops[op] if isinstance(op, str) else op
        listed, several = len(self.operator.outputs), bool(op.outputs) and op.outputs[-1].endswith("*")
        reserved, names = self.build.reserved, []
        for i in range(listed if several else len(op.outputs)):
            known = self.makes(i)
            stem = self.work.stem(self.output(i).name if known else f"{self.name}/unused")
            names.append(self.build.stored(stem, self.storage(i) if known else None))
            self.build.reserved |= {names[-1]}
        self.build.reserved = reserved
        return self.build.add(op, inputs, attrs, outputs=names, like=self._like(self.work.stem(self.name)))

    def steps(self, steps: Steps) -> Sequence[str]:
        """The node's output, made of its first input step by step."""
        *first, (op, attrs) = steps
        inner = apply(first, self.input(0), self.emit)
        return self.done(op, [inner], attrs)

    def fused(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], function: int
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, and its fused activation."""
        from mace_frontend_tflite.ops.activation import FUSED, limits

        bounds, how = limits(function), self.storage()
        if bounds is None:
            self.refuse_unless(function in FUSED, f"fused activation {function} is not supported")
            return self.done(FUSED[function], [self.emit(op, inputs, attrs)])
        if within(how, *bounds):
            return self.done(op, inputs, attrs)
        if "low" in self.build.ops[op].attrs:
            return self.done(op, inputs, {**attrs, "low": bounds[0], "high": bounds[1]})
        return self.done(
            "Clip", [self.emit(op, inputs, attrs, storage=how)], {"min": bounds[0], "max": bounds[1]}
        )


def within(storage: Storage | None, low: float, high: float) -> bool:
    """Whether what is stored so can be nothing outside the limits."""
    if low == -np.inf and high == np.inf:
        return True
    if storage is None or storage.quant.axis is not None:
        return False
    ends, (scale,), (zero,) = np.iinfo(storage.dtype.numpy), storage.quant.scale, storage.quant.zero_point
    return bool(
        (ends.min - zero) * scale >= low - scale / 2 and (ends.max - zero) * scale <= high + scale / 2
    )
