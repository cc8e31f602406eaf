"""How ONNX's operators are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode

Handler = Callable[[OnnxNode], str | Sequence[Held]]
"""Adds what computes a node to the graph and tells the tensors that hold the node's outputs, in their order."""


def handlers() -> Mapping[str, Handler]:
    """The handler of every operator that has one: by its name, or domain::name for one that is not ONNX's own."""
    return rows(__name__, "HANDLERS")
