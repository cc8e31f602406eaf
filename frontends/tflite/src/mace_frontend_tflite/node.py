"""One node of a TensorFlow Lite graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mace_core.build import Builder
from mace_core.ir import Array, DType, Quant, Shape, Storage, Tensor
from mace_core.ir import Node as IrNode
from mace_core.ops.op import Op
from mace_core.recipes import Steps, apply
from mace_frontend_tflite.source import Operator, Subgraph, TensorInfo

if TYPE_CHECKING:
    from mace_frontend_tflite.translate import Translation


class RefusedError(ValueError):  # an answer, not a failure
    """A node cannot be represented; the text says why, and after a semicolon what to do."""


class SkippedError(Exception):  # no error: what it reads has been reported already
    """A node reads what could not be computed."""


@dataclass(frozen=True)
class Node:
    """An operator with its place in a graph. held: the IR's tensors by the file's index."""

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
        return self.graph.tensors[outputs[0]].name if outputs else f"{self.operator.code}_{self.operator.index}"

    @property
    def origin(self) -> IrNode:
        """What the nodes made for it are named after."""
        return IrNode(self.name, self.build.ops["Identity"], (), (), sources=(self.name,))

    def options(self, kind: str) -> Any:
        """Its options; RefusedError if the file has none."""
        found = self.operator.options(kind)
        if found is None:
            raise RefusedError(f"it has no {kind}; convert the model again")
        return found

    def refuse_unless(self, condition: bool, text: str) -> None:
        """RefusedError with the text unless the condition holds."""
        if not condition:
            raise RefusedError(text)

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
        return self.graph.tensors[self.operator.outputs[index]]

    def input(self, index: int) -> str:
        """The tensor at input `index`, "" if it is absent; stored weights of a node that computes floats as floats."""
        if not self.has(index):
            return ""
        tensor = self.stored(index)
        return self.emit("Dequantize", [tensor], tag="floats") if self._is_compressed(tensor) else tensor

    def stored(self, index: int) -> str:
        """The tensor at input `index` as it is stored."""
        return self.work.tensor(self.graph, self.held, self.info(index).index)

    def _is_compressed(self, tensor: str) -> bool:
        results = [self.graph.tensors[o] for o in self.operator.outputs]
        return tensor in self.build.weights and self.tensor(tensor).quant is not None and any(r.dtype is DType.F32 for r in results)

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

    def constant(self, index: int, what: str) -> Array:
        """The stored elements of input `index`; RefusedError if it is not constant."""
        array = self.array(index)
        if array is None:
            raise RefusedError(f"its {what} (input {index}) is computed at run time; convert the model with a constant")
        return array

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Input `index` as numbers; RefusedError if it is not constant."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        self.refuse_unless(-rank <= axis < max(rank, 1), f"axis {axis} of a tensor of rank {rank}")
        return axis % max(rank, 1)

    def weight(self, array: Array, quant: Quant | None = None, tag: str = "constant") -> str:
        """Add a constant of this node's own."""
        return self.build.weight(f"{self.name}/{tag}", np.asarray(array), quant)

    def permuted(self, index: int, perm: Sequence[int], shape: Shape | None = None) -> str:
        """Input `index`, first seen in another shape, with its axes reordered."""
        tensor = self.input(index)
        if shape is not None and shape != self.tensor(tensor).shape:
            tensor = self.emit("Reshape", [tensor], {"shape": shape}, tag="shaped")
        return self.emit("Transpose", [tensor], {"perm": tuple(perm)}, tag="permuted")

    def emit(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, *, tag: str = "", storage: Storage | None = None
    ) -> str:
        """Add an IR node whose one result stays inside."""
        name = self.build.stored(f"{self.name}/{tag or 'inner'}", storage)
        return self.build.add(op, inputs, attrs, outputs=[name], like=self.origin)[0]

    def storage(self, index: int = 0) -> Storage | None:
        """How output `index` stores real numbers; None for floats and plain integers."""
        info = self.output(index)
        return Storage(info.dtype, info.quant) if info.quant and info.dtype else None

    def done(self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Add the IR node that computes this node's outputs, under their names and stored as the file says."""
        op = self.build.ops[op] if isinstance(op, str) else op
        several = bool(op.outputs) and op.outputs[-1].endswith("*")
        count = len(self.operator.outputs) if several else len(op.outputs)
        names = []
        for i in range(count):
            known = i < len(self.operator.outputs)
            stem = self.output(i).name if known else f"{self.name}/unused{i}"
            names.append(self.build.stored(stem, self.storage(i) if known else None))
            self.build.reserved = self.build.reserved | {names[-1]}
        return self.build.add(op, inputs, attrs, outputs=names, like=self.origin)

    def steps(self, steps: Steps) -> Sequence[str]:
        """The node's output, made of its first input step by step."""
        *first, (op, attrs) = steps
        inner = apply(first, self.input(0), lambda op, inputs, attrs: self.emit(op, inputs, attrs))
        return self.done(op, [inner], attrs)

    def activated(self, made: str, function: int) -> tuple[str, ...]:
        """The node's output: what was made for it, through its fused activation."""
        from mace_frontend_tflite.ops.activation import FUSED, limits

        bounds = limits(function)
        if bounds is not None:
            return (made,) if self.clamped(made, *bounds) else self.done("Clip", [made], {"min": bounds[0], "max": bounds[1]})
        self.refuse_unless(function in FUSED, f"fused activation {function} is not supported")
        return self.done(FUSED[function], [made])

    def clamped(self, made: str, low: float, high: float) -> bool:
        """Whether what stores a tensor can hold nothing outside the limits."""
        tensor = self.tensor(made)
        if low == -np.inf and high == np.inf:
            return True
        if tensor.quant is None or tensor.quant.axis is not None:
            return False
        ends, (scale,), (zero,) = np.iinfo(tensor.dtype.numpy), tensor.quant.scale, tensor.quant.zero_point
        return (ends.min - zero) * scale >= low - scale / 2 and (ends.max - zero) * scale <= high + scale / 2
