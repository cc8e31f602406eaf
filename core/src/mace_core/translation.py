"""What frontends share: a node of a model file on its way into the IR, and what is told where it cannot go there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from mace_core.graph_builder import Builder
from mace_core.importer.diagnostics import Damage as Senseless
from mace_core.importer.diagnostics import RefusedError, SkippedError, attempt, refuse_names
from mace_core.ir import Array, Node

__all__ = ["FileNode", "OperandNode", "RefusedError", "Senseless", "SkippedError", "attempt", "refuse_names"]


class FileNode(ABC):
    """A node of a model file as its handler sees it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the user finds it by in the file."""

    @property
    @abstractmethod
    def build(self) -> Builder:
        """The graph that is being made."""

    @property
    def origin(self) -> Node:
        """What the nodes made for it are named after."""
        return Node(self.name, self.build.ops["Identity"], (), (), sources=(self.source,))

    @property
    def source(self) -> str:
        """The node of the file's main graph that it belongs to."""
        return self.name

    def refuse_unless(self, condition: bool, text: str) -> None:
        """RefusedError with the text unless the condition holds."""
        if not condition:
            raise RefusedError(text)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        self.refuse_unless(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
        return axis % rank


class OperandNode(FileNode):
    """A node whose operands are known by their number, constants among them that say what it does.

    again: how it is made anew.
    """

    again: ClassVar[str] = "export"

    @abstractmethod
    def array(self, index: int) -> Array | None:
        """The elements of operand `index` as the file stores them, if it is a constant."""

    def constant(self, index: int, what: str) -> Array:
        """The elements of operand `index`; RefusedError if it is not constant."""
        array = self.array(index)
        if array is None:
            raise RefusedError(
                f"its {what} (input {index}) is computed at run time; {self.again} the model with a constant"
            )
        return array

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Operand `index` as whole numbers; RefusedError if it is not constant."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))
