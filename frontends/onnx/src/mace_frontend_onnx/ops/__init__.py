"""How ONNX's operators are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode

Handler = Callable[[OnnxNode], str | Sequence[Result]]
"""Adds what computes a node to the graph; returns the tensors of the node's outputs in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handlers by operator: its name, or domain::name for one that is not of ONNX's own domain."""
    return rows(__name__, "HANDLERS")
