"""A model on its way from a file into the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.importer.diagnostics import Damage, RefusedError, SkippedError, attempt
from mace_core.importer.node import ImportedNode
from mace_core.ir import Graph

Value = TypeVar("Value")

Convert = Callable[[Any], "str | Sequence[Value | None]"]
"""Adds what computes a node and returns what its outputs stand for. Its argument is the frontend's own `ImportedNode`.

It is given to the importer from outside, and not a method of it, so that modules point one way: importer, node,
handlers, `convert`, `load`. A handler that reads a subgraph calls `Importer.translate`, and never the table of handlers.
"""


@dataclass(frozen=True)
class Limits:
    """How far a file may make the graph grow: functions, branches and loops are written out while it is read.

    depth: how deep they may be nested.  nodes: how many nodes may come of them.
    nesting: the words of the refusal, such as "functions call each other".  remedy: the rest of it.
    """

    depth: int = 32
    nodes: int = 1 << 14
    nesting: str = "graphs call each other"
    remedy: str = ""


class Importer(Generic[Value]):
    """Reads the nodes of a model file into a `Builder` and collects what is wrong with each.

    location: what every error begins with: the name of the file.
    builder: the graph that is being made.
    faults: what is wrong with single nodes, in the order in which they were found.
    Value is what an output of a node stands for: the name of a tensor of the IR, or what the frontend has besides.
    """

    damage: Damage = Damage("its inputs or attributes", "export the model again")
    limits: Limits = Limits()

    def __init__(self, location: str, builder: Builder, convert: Convert[Value]) -> None:
        self.location = location
        self.builder = builder
        self.faults: list[str] = []
        self._convert = convert
        self._constants: dict[Hashable, str] = {}
        self._depth = 0
        self._written = 0

    def locate(self, node: ImportedNode) -> str:
        """Return what an error about a node begins with."""
        return f"{self.location}: {node.noun} {node.name!r} ({node.op})"

    def translate(self, node: ImportedNode) -> Sequence[Value | None] | None:
        """Add what computes a node; return what its outputs stand for.

        None if it failed, with the fault noted; the nodes that read it are then skipped.
        """
        return attempt(self.faults, self.locate(node), lambda: self._results(node), self.damage)

    def _results(self, node: ImportedNode) -> Sequence[Value | None]:
        results = self._convert(node)
        listed = [results] if isinstance(results, str) else results
        return cast("Sequence[Value | None]", listed)

    def refuse_unknown(
        self, nodes: Iterable[ImportedNode], explain: Callable[[ImportedNode], str | None]
    ) -> None:
        """Raise one MaceError for all nodes whose operator nothing here supports, before any is translated.

        explain: returns why a node is not supported, with the remedy; None if it is.
        """
        reasons = ((node, explain(node)) for node in nodes)
        faults = [f"{self.locate(node)}: {reason}" for node, reason in reasons if reason]
        if faults:
            raise MaceError.of(dict.fromkeys(faults))

    def constant(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return the tensor of a constant that several nodes read; `make` adds it when it is first asked for.

        A constant that no node reads never enters the graph, so that weights outside the cut are not read.
        """
        if key not in self._constants:
            self._constants[key] = make()
        return self._constants[key]

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Surround the translation of a subgraph in place of the node that holds or calls it.

        Raises RefusedError where subgraphs are nested too deep, SkippedError at the end if a node inside failed.
        """
        if self._depth >= self.limits.depth:
            raise RefusedError(
                f"{self.limits.nesting} more than {self.limits.depth} deep{self.limits.remedy}"
            )
        before = len(self.faults)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError

    def write_out(self, nodes: int) -> bool:
        """Count nodes of the file that are written out in place of another; return whether all so far are within the limit."""
        self._written += nodes
        return not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether more nodes of the file were written out than the limit allows."""
        return self._written > self.limits.nodes

    def has_room_for(self, nodes: int) -> bool:
        """Tell whether so many nodes more of the IR are within the limit, before they are made."""
        return len(self.builder.nodes) + nodes <= self.limits.nodes

    def raise_faults(self) -> None:
        """Raise one MaceError with every fault, each once; return if there is none."""
        if self.faults:
            raise MaceError.of(dict.fromkeys(self.faults))

    def finish(self, outputs: Callable[[], Sequence[str]], names: Sequence[str]) -> Graph:
        """Return the graph that computes `outputs`, under their public names. MaceError with every fault.

        outputs: looked up only if no node failed, so that a missing output is not a second report of one fault.
        """
        self.raise_faults()
        return self.builder.finish(outputs(), names)
