"""The kit that frontends are made of.

A frontend reads its format's file, and gives core a graph. What is its own is the reader and one handler for each
operator; what every frontend does alike is here:

- `Importer`: a model on its way into the IR: collects faults, limits nesting and loops, adds shared constants once.
- `Scope`: values by the framework's names, in a graph and in the branches and bodies inside it.
- `ImportedNode`, `OperandNode`: a node as its handler sees it; `emit` and `done` add nodes of the IR for it.
- `RefusedError`: what a handler raises, through `refuse_unless`, for what the IR cannot represent.
- `needed_nodes`, `refuse_names`, `shape_fault`, `size_fault`: the part of a model between the tensors that a deployment
  file names.

`mace_core.decompositions` has operators that frameworks share and the IR composes.
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
