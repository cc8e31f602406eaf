"""How NNEF's operations are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_nnef.node import NnefNode

Handler = Callable[[NnefNode], str | Sequence[str]]
"""Adds what computes an operation to the graph; returns the tensors that hold its results, in their order."""


def handlers() -> Mapping[str, Handler]:
    """The handler of every operation that has one."""
    return rows(__name__, "HANDLERS")
