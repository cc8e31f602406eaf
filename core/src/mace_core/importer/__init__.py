"""The kit that frontends are made of.

A frontend reads the file of a framework and returns a graph. It has a reader of the format and a handler for
each operator; everything else is here:

- `Importer`: collects faults, limits nesting and loops, adds shared constants once.
- `Scope`: values by the framework's names, in a graph and in its branches and function bodies.
- `ImportedNode`, `OperandNode`: a node as its handler sees it; `emit` and `done` add nodes of the IR for it.
- `RefusedError`: raised by a handler, through `refuse_unless`, if the IR cannot represent the node.
- `needed_nodes`, `refuse_names`, `shape_fault`, `size_fault`: cut a model at the tensors that its deployment
  file names.

`mace_core.decompositions` composes operators that several frameworks have out of ops of the IR.
"""

from __future__ import annotations

from mace_core.importer.diagnostics import Damage, RefusedError, SkippedError, attempt, refuse_names
from mace_core.importer.importer import Convert, Importer, Limits
from mace_core.importer.model_cut import needed_nodes, shape_fault, size_fault
from mace_core.importer.node import ImportedNode, OperandNode, to_first, to_last
from mace_core.importer.scope import Scope

__all__ = [
    "Convert",
    "Damage",
    "ImportedNode",
    "Importer",
    "Limits",
    "OperandNode",
    "RefusedError",
    "Scope",
    "SkippedError",
    "attempt",
    "needed_nodes",
    "refuse_names",
    "shape_fault",
    "size_fault",
    "to_first",
    "to_last",
]
