"""Expresses TensorFlow Lite's operators in the IR.

Every module in this folder offers its handlers as `HANDLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_tflite.node import TfliteNode

Handler = Callable[[TfliteNode], str | Sequence[str]]
"""Adds the IR's nodes for a node; returns the tensors that hold the node's outputs, in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handler of every operator that has one, by the operator's name in the schema."""
    return rows(__name__, "HANDLERS")
