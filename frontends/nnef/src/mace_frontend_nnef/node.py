"""Shows a handler one operation of an NNEF graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode
from mace_core.ir import Shape
from mace_core.ops.op import Op
from mace_frontend_nnef.importer import NnefImporter
from mace_frontend_nnef.source import DTYPES
from mace_frontend_nnef.syntax import Name, NnefOperation, flatten, names_in


@dataclass(frozen=True)
class NnefNode(ImportedNode):
    """An operation with its operands and attributes, whose types the parser has checked by its signature."""

    operation: NnefOperation
    importer: NnefImporter

    @property
    def name(self) -> str:
        """The name of the first result: NNEF has no names of operations."""
        return next(iter(self.results()), self.op)

    @property
    def op(self) -> str:
        """The operator."""
        return self.operation.name

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    def results(self) -> list[str]:
        """Return the names of the results."""
        return list(self.operation.outputs)

    def reads(self) -> list[str]:
        """Return the names of the tensors that the operation reads."""
        return list(names_in(self.operation.inputs.values()))

    def inputs(self) -> list[str]:
        """Return the tensors that the operation reads; numbers among the operands become constants."""
        return [self.tensor(value) for value in flatten(self.operation.inputs.values())]

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return names for the results."""
        return [self.builder.fresh(name) for name in self.results()]

    def input(self, name: str) -> str:
        """Return the tensor of an operand; a number becomes a constant."""
        return self.tensor(self.operation.inputs[name])

    def tensor_list(self, name: str) -> list[str]:
        """Return the tensors of an operand that is a list; RefusedError if it is empty."""
        values = self.operation.inputs[name]
        self.refuse_unless(isinstance(values, list) and bool(values), f"its {name} are empty")
        return [self.tensor(value) for value in values]

    def tensor(self, value: Any) -> str:
        """Return the tensor that an operand means."""
        if isinstance(value, Name):
            return self.importer.scope.find(str(value))
        self.refuse_unless(isinstance(value, bool | int | float), f"its operand {value!r} is no tensor")
        # NNEF's literals have no width; a number is a `scalar`, which is computed in single precision.
        dtype = bool if isinstance(value, bool) else np.float32
        return self.builder.weight(f"{self.name}/constant", np.asarray(value, dtype))

    def literal(self, name: str) -> float | None:
        """Return an operand that the description states as a number; None if it is a tensor."""
        value = self.operation.inputs[name]
        return float(value) if isinstance(value, int | float) else None

    def attribute(self, name: str) -> Any:
        """Return an attribute; its default where the description does not state it."""
        return self.operation.attribs[name]

    def integer(self, name: str) -> int:
        """Return an attribute that is an integer."""
        return int(self.attribute(name))

    def number(self, name: str) -> float:
        """Return an attribute that is a number."""
        return float(self.attribute(name))

    def integers(self, name: str) -> Shape:
        """Return an attribute that is a list of integers."""
        return tuple(int(value) for value in self.attribute(name))

    def shape(self, name: str) -> Shape:
        """Return the shape of an operand."""
        return self.builder.shape(self.input(name))

    def axes(self, name: str, rank: int) -> Shape:
        """Return an attribute that is a list of distinct axes; NNEF has no negative axes."""
        axes = self.integers(name)
        self.refuse_unless(len(set(axes)) == len(axes), f"its {name} {list(axes)} name one twice")
        self.refuse_unless(
            all(0 <= axis < rank for axis in axes), f"its {name} {list(axes)} of a tensor of rank {rank}"
        )
        return axes

    def align_ranks(self, tensors: Sequence[str]) -> list[str]:
        """Return operands with axes of 1 appended, so that all have one rank.

        NNEF broadcasts from the first axis on, numpy and the IR from the last. NNEF 1.0.5, section 4.1.1:
        [4, 16] beside [1, 16, 32, 32] means [4, 16, 1, 1].
        """
        rank = max((len(self.builder.shape(tensor)) for tensor in tensors), default=0)
        return [self.of_rank(tensor, rank) for tensor in tensors]

    def of_rank(self, tensor: str, rank: int) -> str:
        """Return a tensor with axes of 1 appended; a single number broadcasts as it is."""
        shape = self.builder.shape(tensor)
        if not shape or len(shape) >= rank:
            return tensor
        return self.emit("Reshape", [tensor], {"shape": (*shape, *(1,) * (rank - len(shape)))}, tag="aligned")

    def constant_of(self, kind: str, values: Any, shape: Shape, tag: str = "constant") -> str:
        """Add a constant of one of NNEF's types; return its tensor."""
        return self.builder.weight(f"{self.name}/{tag}", np.asarray(values, DTYPES[kind]).reshape(shape))
