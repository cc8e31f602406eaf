"""One operation of an NNEF graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode
from mace_core.ir import Shape
from mace_core.ops.op import Op
from mace_frontend_nnef.importer import NnefImporter
from mace_frontend_nnef.source import DTYPES
from mace_frontend_nnef.syntax import Name, Operation


@dataclass(frozen=True)
class NnefNode(ImportedNode):
    """An operation, its operands and attributes. Their types are those of its signature."""

    operation: Operation
    importer: NnefImporter

    @property
    def name(self) -> str:
        """The name of its first result."""
        return next(iter(self.results()), self.op)

    @property
    def op(self) -> str:
        """Its operator."""
        return self.operation.name

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    def results(self) -> list[str]:
        """Return the names of its results."""
        return list(self.operation.outputs)

    def reads(self) -> list[str]:
        """Return the names of the tensors that it reads."""
        return list(names_in(self.operation.inputs.values()))

    def inputs(self) -> list[str]:
        """Return the tensors that it reads, numbers in their place as constants."""
        return [self.tensor(value) for value in _flat(self.operation.inputs.values())]

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for its results."""
        return [self.builder.fresh(name) for name in self.results()]

    def input(self, name: str) -> str:
        """Return the tensor of an operand; a number becomes a constant."""
        return self.tensor(self.operation.inputs[name])

    def listed(self, name: str) -> list[str]:
        """Return the tensors of an operand that is a list."""
        values = self.operation.inputs[name]
        self.refuse_unless(isinstance(values, list) and bool(values), f"its {name} are empty")
        return [self.tensor(value) for value in values]

    def tensor(self, value: Any) -> str:
        """Return the tensor that an operand means."""
        if isinstance(value, Name):
            return self.importer.scope.find(str(value))
        self.refuse_unless(isinstance(value, bool | int | float), f"its operand {value!r} is no tensor")
        kind = bool if isinstance(value, bool) else np.float32
        return self.builder.weight(f"{self.name}/constant", np.asarray(value, kind))

    def literal(self, name: str) -> float | None:
        """Return an operand that is a number in the text; None if it is a tensor."""
        value = self.operation.inputs[name]
        return float(value) if isinstance(value, int | float) else None

    def attribute(self, name: str) -> Any:
        """Return an attribute, its default included."""
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
        """Return an attribute that is a list of axes, each once, which NNEF counts from the front only."""
        axes = self.integers(name)
        self.refuse_unless(len(set(axes)) == len(axes), f"its {name} {list(axes)} name one twice")
        self.refuse_unless(
            all(0 <= a < rank for a in axes), f"its {name} {list(axes)} of a tensor of rank {rank}"
        )
        return axes

    def aligned(self, tensors: Sequence[str]) -> list[str]:
        """Return operands of one rank: NNEF broadcasts from the first axis on, so that axes of 1 are added behind.

        NNEF 1.0.5, section 4.1.1: [4, 16] and [1, 16, 32, 32] is [4, 16, 1, 1] and [1, 16, 32, 32].
        """
        rank = max((len(self.builder.shape(tensor)) for tensor in tensors), default=0)
        return [self.of_rank(tensor, rank) for tensor in tensors]

    def of_rank(self, tensor: str, rank: int) -> str:
        """Return a tensor with axes of 1 added behind; one number broadcasts as it is."""
        shape = self.builder.shape(tensor)
        if not shape or len(shape) >= rank:
            return tensor
        return self.emit("Reshape", [tensor], {"shape": (*shape, *(1,) * (rank - len(shape)))}, tag="aligned")

    def constant_of(self, kind: str, values: Any, shape: Shape, tag: str = "constant") -> str:
        """Add a constant of one of NNEF's types."""
        return self.builder.weight(f"{self.name}/{tag}", np.asarray(values, DTYPES[kind]).reshape(shape))


def names_in(values: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tensors among operands, of which each may be a list."""
    for value in _flat(values):
        if isinstance(value, Name):
            yield str(value)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else (value,)
