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
"""Values that a constant can be made from."""


class ImportedNode(ABC):
    """A node of a model file, with methods that add nodes of the IR for it.

    A handler calls `emit` for each node whose result is internal, and `done` for the last one, whose results
    get the names of the file's tensors. All state the node of the file that they come from (`Node.sources`).
    """

    noun: ClassVar[str] = "node"
    """The noun for it in errors: "node 'conv1' (Conv)"."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which the user finds it in the file."""

    @property
    @abstractmethod
    def op(self) -> str:
        """Its operator, by the framework's name."""

    @property
    @abstractmethod
    def builder(self) -> Builder:
        """The builder of the graph."""

    @abstractmethod
    def inputs(self) -> list[str]:
        """Return the tensors that it reads, in the order of the file."""

    @abstractmethod
    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return unused names for the outputs: those of the file's tensors, as far as the node lists them.

        count: the number that the handler needs; None for as many as the file lists, or the op has.
        """

    @property
    def source(self) -> str:
        """The node of the file's main graph that it is, or that contains it."""
        return self.name

    @property
    def origin(self) -> Node:
        """The node that gives its name and source to the nodes that are added for it."""
        return self.origin_of(self.name)

    def origin_of(self, name: str) -> Node:
        """Return a node that gives this name, and this node as source, to nodes that are added."""
        return Node(name, self.builder.ops["Identity"], (), (), sources=(self.source,))

    def refuse_unless(self, condition: bool, text: str) -> None:
        """Raise RefusedError with the text unless the condition holds."""
        if not condition:
            raise RefusedError(text)

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; raises RefusedError if it is out of range."""
        self.refuse_unless(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
        return axis % rank

    def inner_name(self, tag: str) -> str:
        """Return the name of something that is added for this node; it may be in use already."""
        return f"{self.name}/{tag}"

    def inner_origin(self, tag: str) -> Node:
        """Return the origin of a node with internal results; `tag` says what it computes."""
        return self.origin

    def inner_names(self, tag: str, count: int) -> Sequence[str] | int:
        """Return unused names for internal results, or their number to have the builder name them."""
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
        """Add a node of the IR.

        All other methods add through this one, so that a frontend can override it, to share equal nodes.
        """
        return self.builder.add(op, inputs, attrs, outputs=outputs, like=origin)

    def emit(
        self, op: str | Op, inputs: Sequence[str], attrs: AttributeValues | None = None, *, tag: str = ""
    ) -> str:
        """Add a node of the IR with one internal result; return its tensor."""
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
        """Add a node of the IR with `count` internal results; return their tensors."""
        return self.add(op, inputs, attrs, self.inner_names(tag, count), self.inner_origin(tag))

    def done(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None = None,
        *,
        count: int | None = None,
    ) -> tuple[str, ...]:
        """Add the node of the IR that computes this node's outputs, with their names; return the tensors."""
        op = self.builder.ops[op] if isinstance(op, str) else op
        return self.add(op, inputs, attrs, self.output_names(op, count), self.origin)

    def emit_steps(self, steps: Steps, operand: str) -> str:
        """Add the steps of a decomposition one after another; return the last result."""
        for op, attrs in steps:
            operand = self.emit(op, [operand], attrs)
        return operand

    def done_steps(self, steps: Steps, operand: str) -> tuple[str, ...]:
        """Add the steps of a decomposition; the last one computes this node's output."""
        *first, (op, attrs) = steps
        return self.done(op, [self.emit_steps(first, operand)], attrs)

    def channels_last(self, tensor: str) -> str:
        """Transpose a tensor [N, C, *spatial] to [N, *spatial, C], the order of the IR's spatial ops."""
        rank = len(self.builder.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"its input has rank {rank}; it needs a batch, channels and spatial axes"
        )
        return self.emit("Transpose", [tensor], {"perm": to_last(rank)}, tag="channels-last")

    def channels_first(self, tensor: str) -> tuple[str, ...]:
        """Add this node's output [N, C, *spatial], transposed from [N, *spatial, C]."""
        return self.done("Transpose", [tensor], {"perm": to_first(len(self.builder.shape(tensor)))})

    def add_constant(self, array: Elements, dtype: DType | None = None, tag: str = "constant") -> str:
        """Add a constant that only this node reads, in its own type by default; return its tensor."""
        elements = np.asarray(array, dtype.numpy if dtype else None)
        return self.builder.weight(self.inner_name(tag), elements)

    def add_float(self, array: Elements, tag: str = "constant") -> str:
        """Add a constant in single precision that only this node reads; return its tensor."""
        return self.add_constant(array, DType.F32, tag)


class OperandNode(ImportedNode):
    """A node whose operands are numbered, and of which some must be constants, such as axes and shapes.

    remake: the verb that errors use for making the file again: "export", "convert", "freeze", "save".
    """

    remake: ClassVar[str] = "export"

    @abstractmethod
    def array(self, index: int) -> Array | None:
        """Return the elements of operand `index` as the file stores them; None if a node computes them."""

    def constant(self, index: int, subject: str) -> Array:
        """Return the elements of operand `index`; raises RefusedError if a node computes them."""
        array = self.array(index)
        if array is None:
            raise RefusedError(
                f"its {subject} (input {index}) is computed at run time; "
                f"{self.remake} the model with a constant"
            )
        return array

    def ints(self, index: int, subject: str) -> tuple[int, ...]:
        """Return operand `index` as integers; raises RefusedError if a node computes them."""
        return tuple(int(v) for v in self.constant(index, subject).reshape(-1))


def to_last(rank: int) -> Shape:
    """Return the permutation from [N, C, *spatial] to [N, *spatial, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> Shape:
    """Return the permutation from [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))
