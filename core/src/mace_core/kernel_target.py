"""Targets that compute by calling C kernels: lowering of a region to a program, node by node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

from mace_core.api import Target
from mace_core.ir import Graph, Node
from mace_core.program import Lowering, Program, Refused

Lower = Callable[[Node, Lowering], None]
"""Appends the calls that compute one node; raises Refused with the reason where it cannot."""


@dataclass(frozen=True)
class Isa:
    """A level of an instruction set that kernels are compiled for.

    available: C expression that is true on a processor that has it; "" for what every processor of the ABI has.
    probe: template of the C functions that `available` calls; None if it calls none.
    prelude: template of the C that all kernels of the level see (vector types and the like).
    lanes: floats in one vector register.
    rows, columns: the tile of results that the matrix kernel keeps in registers.
    """

    name: str
    flags: tuple[str, ...]
    available: str
    prelude: Traversable
    lanes: int
    rows: int
    columns: int
    probe: Traversable | None = None


class KernelTarget(Target):
    """A target whose regions become programs of kernel calls."""

    lowerings: Mapping[str, Lower]

    @abstractmethod
    def isas(self, abi: str) -> tuple[Isa, ...]:
        """The levels that a library for this ABI holds, the best first and what every processor has last."""

    @property
    @abstractmethod
    def panel(self) -> int:
        """Columns of a packed weight matrix that lie together; a multiple of every level's tile."""

    def refuses(self, node: Node, graph: Graph) -> str | None:
        """None if a trial lowering goes through; otherwise its reason."""
        lower = self.lowerings.get(node.op.name) or node.op.lower
        if lower is None:
            return f"{self.name} has no kernel for {node.op.name}"
        try:
            lower(node, Lowering(graph, self.panel))
        except Refused as reason:
            return str(reason)
        return None

    def lower(self, graph: Graph) -> Program:
        """The program of a region whose nodes were all accepted."""
        to = Lowering(graph, self.panel)
        for node in graph.nodes:
            lower = self.lowerings.get(node.op.name) or node.op.lower
            assert lower is not None, f"{node} was not refused"
            lower(node, to)
        return to.finish()
