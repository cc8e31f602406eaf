"""Expresses TensorFlow's operators in the IR: every module here offers its handlers as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.values import OptionalValue

Handler = Callable[[TensorFlowNode], str | Sequence[OptionalValue]]
"""Adds what computes a node to the graph; returns what the node's outputs stand for, in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handler of every operator that has one, by its name."""
    return rows(__name__, "HANDLERS")
