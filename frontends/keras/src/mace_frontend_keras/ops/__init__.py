"""How Keras's layers and operations are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_keras.node import KerasNode

Handler = Callable[[KerasNode], Sequence[str]]
"""Adds what computes a call to the graph and tells the tensors that hold its results, in their order."""


def handlers() -> Mapping[str, Handler]:
    """The handler of every kind of layer that has one."""
    return rows(__name__, "HANDLERS")
