"""Reads the nodes of a model file into a graph of the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from mace_core.graph_builder import Builder
from mace_core.importer.diagnostics import Damage, RefusedError, SkippedError, attempt
from mace_core.importer.fault_groups import FaultGroups, FaultyNode
from mace_core.importer.node import ImportedNode
from mace_core.importer.padded_rows import PROBLEM, REMEDY, find_padded_reads
from mace_core.ir import Graph

Value = TypeVar("Value")

Convert = Callable[[Any], "str | Sequence[Value | None]"]
"""Adds the nodes of the IR that compute a node, and returns a value for each of its outputs.

Its argument is the frontend's `ImportedNode`. It is a parameter of the importer and not a method, so that
imports point one way: importer, node, handlers, `convert`, `load`. A handler that reads a subgraph calls
`Importer.translate`, and never the table of handlers.
"""


@dataclass(frozen=True)
class Limits:
    """Limits of functions, branches and loops, which are expanded while a file is read.

    depth: maximum depth of nesting.  nodes: maximum number of nodes after the expansion.
    nesting: the subject of the refusal, such as "functions call each other".  remedy: its end.
    """

    # A small file can otherwise ask for any number of nodes: ten nested functions that each call the next one
    # ten times are 10 ** 10 nodes.

    depth: int = 32
    nodes: int = 1 << 14
    nesting: str = "graphs call each other"
    remedy: str = ""


class Importer(Generic[Value]):
    """Reads the nodes of a model file into a `Builder` and collects the faults of each.

    location: the name of the file, with which every error begins.
    builder: the builder of the graph.
    faults: messages about single nodes, in the order of the file.
    padded: tensors with a row for each box that is selected at run time, and padding behind the last.
    `Value` is the type that stands for an output of a node: the name of a tensor of the IR, or a type of the
    frontend.
    """

    damage: Damage = Damage("its inputs or attributes", "export the model again")
    limits: Limits = Limits()

    def __init__(self, location: str, builder: Builder, convert: Convert[Value]) -> None:
        self.location = location
        self.builder = builder
        self.faults: list[str] = []
        self.padded: set[str] = set()
        self._faulty_nodes: dict[str, FaultyNode] = {}
        self._convert = convert
        self._constants: dict[Hashable, str] = {}
        self._depth = 0
        self._expanded = 0

    def locate(self, node: ImportedNode) -> str:
        """Return the beginning of errors about a node."""
        return str(self._describe(node))

    def _describe(self, node: ImportedNode) -> FaultyNode:
        return FaultyNode(self.location, node.noun, node.name, node.op)

    def translate(self, node: ImportedNode) -> Sequence[Value | None] | None:
        """Add the nodes of the IR that compute a node, and return a value for each of its outputs.

        On failure the fault is recorded and None returned; nodes that read its outputs are then skipped.
        """
        before = len(self.faults)
        results = attempt(self.faults, self.locate(node), lambda: self._results(node), self.damage)
        # A fault from inside of a subgraph begins with a node of that, and is recorded there.
        place = self.locate(node)
        direct_faults = (fault for fault in self.faults[before:] if fault.startswith(place))
        self._faulty_nodes.update(dict.fromkeys(direct_faults, self._describe(node)))
        return results

    def _results(self, node: ImportedNode) -> Sequence[Value | None]:
        results = self._convert(node)
        listed = [results] if isinstance(results, str) else results
        return cast("Sequence[Value | None]", listed)

    def refuse_unknown(
        self, nodes: Iterable[ImportedNode], explain: Callable[[ImportedNode], str | None]
    ) -> None:
        """Raise one MaceError for all nodes whose operator the frontend does not support.

        explain: returns why a node is not supported, with the remedy; None if it is.
        """
        # Before any node is translated: the user sees all unsupported operators at once, and not faults that
        # follow from the first one.
        reasons = ((node, explain(node)) for node in nodes)
        faults = FaultGroups()
        for node, reason in reasons:
            if reason:
                faults.add(self._describe(node), reason)
        faults.check()

    def refuse_padded_rows(self, outputs: Iterable[str]) -> None:
        """Raise one MaceError for all nodes before the outputs that would take padding for selected boxes."""
        nodes = find_padded_reads(self.builder.nodes, self.padded, outputs)
        faults = FaultGroups()
        for node in nodes:
            faults.add(
                FaultyNode(self.location, "node", node.sources[0], node.op.name), f"{PROBLEM}; {REMEDY}"
            )
        faults.check()

    def constant(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return the tensor of a constant that several nodes read; `make` adds it at the first request.

        A constant that no node reads is never added, so that weights outside of the cut are not read.
        """
        if key not in self._constants:
            self._constants[key] = make()
        return self._constants[key]

    @contextmanager
    def enter_subgraph(self) -> Iterator[None]:
        """Surround the translation of a subgraph that replaces the node which contains or calls it.

        Raises RefusedError if subgraphs are nested too deep, SkippedError at the end if a node inside failed.
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

    def count_expanded(self, nodes: int) -> bool:
        """Count nodes that replace a call or a loop; return whether their number is within the limit."""
        self._expanded += nodes
        return not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether calls and loops have been expanded to more nodes than the limit allows."""
        return self._expanded > self.limits.nodes

    def has_room_for(self, nodes: int) -> bool:
        """Tell whether this many more nodes of the IR are within the limit, before they are added."""
        return len(self.builder.nodes) + nodes <= self.limits.nodes

    def raise_faults(self) -> None:
        """Raise one MaceError with all faults, each once; return if there is none."""
        faults = FaultGroups()
        for fault in self.faults:
            node = self._faulty_nodes.get(fault)
            faults.add(node, fault.removeprefix(f"{node}: ") if node else fault)
        faults.check()

    def finish(self, outputs: Callable[[], Sequence[str]], names: Sequence[str]) -> Graph:
        """Return the graph that computes `outputs`, with their public names.

        outputs: called only if no node failed, so that a missing output is not reported besides its reason.
        Raises MaceError with all faults.
        """
        self.raise_faults()
        return self.builder.finish(outputs(), names)
