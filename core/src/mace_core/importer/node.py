"""A node of a model file as its handler sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mace_core.attributes import AttributeValues
from mace_core.decompositions import Steps
from mace_core.graph_builder import Builder
from mace_core.importer.diagnostics import RefusedError
from mace_core.ir import Array, DType, Node, Shape
from mace_core.ops.op import Op

Elements = Array | np.generic | Sequence[Any] | float
"""What a constant can be made of."""


class ImportedNode(ABC):
    """A node of a model file: what it is called, what it reads, and how nodes of the IR are made for it.

    A handler calls `emit` for each node whose result stays inside, and `done` for the last, whose results bear the
    names of the file's tensors. All of them tell the node of the file that they come from (`Node.sources`).
    """

    noun: ClassVar[str] = "node"
    """What errors call it: "node 'conv1' (Conv)"."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the user finds it by in the file."""

    @property
    @abstractmethod
    def op(self) -> str:
        """Its operator, as the framework calls it."""

    @property
    @abstractmethod
    def builder(self) -> Builder:
        """The graph that is being made."""

    @abstractmethod
    def inputs(self) -> list[str]:
        """Return the tensors that it reads, in the order of the file."""

    @abstractmethod
    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return free names for the outputs of the IR's node that computes this one: its own, as far as it lists them.

        count: how many the handler asks for; None for as many as the file lists, or the op has.
        """

    @property
    def source(self) -> str:
        """The node of the file's main graph that it is, or is inside of."""
        return self.name

    @property
    def origin(self) -> Node:
        """What the nodes made for it are named after."""
        return self.origin_of(self.name)

    def origin_of(self, name: str) -> Node:
        """Return what gives a node made for it this name, and says that it comes from this node of the file."""
        return Node(name, self.builder.ops["Identity"], (), (), sources=(self.source,))

    def refuse_unless(self, condition: bool, text: str) -> None:
        """Raise RefusedError with the text unless the condition holds."""
        if not condition:
            raise RefusedError(text)

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; RefusedError if the tensor has none such."""
        self.refuse_unless(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
        return axis % rank

    def inner_name(self, tag: str) -> str:
        """Return what something made for this node is called; it need not be free."""
        return f"{self.name}/{tag}"

    def inner_origin(self, tag: str) -> Node:
        """Return what a node whose results stay inside is named after; `tag` tells what it computes."""
        return self.origin

    def inner_names(self, tag: str, count: int) -> Sequence[str] | int:
        """Return free names for results that stay inside, or their number, to have them named after the node."""
        stem = self.inner_name(tag or "inner")
        return [self.builder.fresh(stem if count == 1 else f"{stem}-{i}") for i in range(count)]

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None,
        outputs: Sequence[str] | int,
        origin: Node,
    ) -> tuple[str, ...]:
        """Add a node of the IR; every other method adds through this one, so that a frontend may share equal nodes."""
        return self.builder.add(op, inputs, attrs, outputs=outputs, like=origin)

    def emit(
        self, op: str | Op, inputs: Sequence[str], attrs: AttributeValues | None = None, *, tag: str = ""
    ) -> str:
        """Add a node of the IR whose one result stays inside; return that."""
        return self.emit_all(op, inputs, attrs, tag=tag)[0]

    def emit_all(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        tag: str = "",
        count: int = 1,
    ) -> tuple[str, ...]:
        """Add a node of the IR with `count` results that stay inside; return those."""
        return self.add(op, inputs, attrs, self.inner_names(tag, count), self.inner_origin(tag))

    def done(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        count: int | None = None,
    ) -> tuple[str, ...]:
        """Add the node of the IR that computes this node's outputs, under their names; return those."""
        op = self.builder.ops[op] if isinstance(op, str) else op
        return self.add(op, inputs, attrs, self.output_names(op, count), self.origin)

    def emit_steps(self, steps: Steps, operand: str) -> str:
        """Add the steps of a decomposition one after another; return what the last one makes."""
        for op, attrs in steps:
            operand = self.emit(op, [operand], attrs)
        return operand

    def done_steps(self, steps: Steps, operand: str) -> tuple[str, ...]:
        """Add the steps of a decomposition; the last one computes this node's output."""
        *first, (op, attrs) = steps
        return self.done(op, [self.emit_steps(first, operand)], attrs)

    def channels_last(self, tensor: str) -> str:
        """Return a tensor [N, C, *spatial] as [N, *spatial, C], as spatial ops of the IR want it."""
        rank = len(self.builder.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"its input has rank {rank}; it needs a batch, channels and spatial axes"
        )
        return self.emit("Transpose", [tensor], {"perm": to_last(rank)}, tag="channels-last")

    def channels_first(self, tensor: str) -> tuple[str, ...]:
        """Add the node's output [N, C, *spatial], computed of [N, *spatial, C]."""
        return self.done("Transpose", [tensor], {"perm": to_first(len(self.builder.shape(tensor)))})

    def add_constant(self, array: Elements, dtype: DType | None = None, tag: str = "constant") -> str:
        """Add a constant of this node's own, in the given type or in that of the array; return its tensor."""
        elements = np.asarray(array, dtype.numpy if dtype else None)
        return self.builder.weight(self.inner_name(tag), elements)

    def add_float(self, array: Elements, tag: str = "constant") -> str:
        """Add a constant of this node's own, of single precision; return its tensor."""
        return self.add_constant(array, DType.F32, tag)


class OperandNode(ImportedNode):
    """A node whose operands are known by their number, constants among them that say what it does.

    remake: the verb for how the user makes the file anew: "export", "convert", "freeze", "save".
    """

    remake: ClassVar[str] = "export"

    @abstractmethod
    def array(self, index: int) -> Array | None:
        """Return the elements of operand `index` as the file stores them; None if it is computed at run time."""

    def constant(self, index: int, what: str) -> Array:
        """Return the elements of operand `index`; RefusedError if it is computed at run time."""
        array = self.array(index)
        if array is None:
            raise RefusedError(
                f"its {what} (input {index}) is computed at run time; {self.remake} the model with a constant"
            )
        return array

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return operand `index` as integers; RefusedError if it is computed at run time."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))


def to_last(rank: int) -> Shape:
    """Return the permutation from [N, C, *spatial] to [N, *spatial, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> Shape:
    """Return the permutation from [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))
