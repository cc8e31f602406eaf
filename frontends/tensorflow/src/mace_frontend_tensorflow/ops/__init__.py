"""How TensorFlow's operators are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode

Handler = Callable[[TensorFlowNode], str | Sequence[Held]]
"""Adds what computes a node to the graph and tells what the node's outputs stand for, in their order."""


def handlers() -> Mapping[str, Handler]:
    """The handler of every operator that has one, by its name."""
    return rows(__name__, "HANDLERS")
