"""Expresses Keras's layers and operations in the IR.

Every module in this folder offers its handlers as `HANDLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_keras.node import KerasNode

Handler = Callable[[KerasNode], Sequence[str]]
"""Adds the IR's nodes for a call; returns the tensors that hold its results, in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handler of every kind of layer that has one."""
    return rows(__name__, "HANDLERS")
