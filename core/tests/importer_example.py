"""A frontend of a dozen lines on the kit, for the tests of the kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import Importer, Limits, OperandNode, RefusedError, Scope, SkippedError
from mace_core.ir import Array, DType
from mace_core.ops.op import Op


class ExampleImporter(Importer[str]):
    """Reads nodes that are tuples."""

    limits = Limits(depth=3, nodes=10, nesting="bodies hold bodies", remedy="; use fewer")

    def __init__(self) -> None:
        super().__init__("m.example", Builder("graph"), convert)
        self.builder.input("x", DType.F32, (1, 2, 4, 5))
        self.scope = Scope[str, str]({"x": "x"})


@dataclass(frozen=True)
class ExampleNode(OperandNode):
    """A node of a file: an operator, the names that it reads and writes, and constants."""

    remake = "save"

    importer: ExampleImporter
    kind: str
    reads: tuple[str, ...] = ("x",)
    writes: tuple[str, ...] = ("y",)
    arrays: Mapping[int, Array] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}-of-{self.writes[0]}"

    @property
    def op(self) -> str:
        return self.kind

    @property
    def builder(self) -> Builder:
        return self.importer.builder

    def inputs(self) -> list[str]:
        return [self.importer.scope.find(name) for name in self.reads]

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        return [self.builder.fresh(name) for name in self.writes]

    def array(self, index: int) -> Array | None:
        return self.arrays.get(index)


def convert(node: ExampleNode) -> str | Sequence[str]:
    if node.kind == "damaged":
        raise KeyError("k")
    if node.kind == "skipped":
        raise SkippedError
    if node.kind == "double":
        return node.emit("Add", node.inputs() * 2, tag="twice")
    if node.kind == "nested":
        with node.importer.enter_subgraph():
            node.importer.translate(ExampleNode(node.importer, "nested"))
    if node.kind == "refused":
        raise RefusedError("this operator is not supported; do without")
    return node.done(node.kind, node.inputs())


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)
