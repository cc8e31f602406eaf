"""Expresses NNEF's operations in the IR; every module of this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_nnef.node import NnefNode

Handler = Callable[[NnefNode], str | Sequence[str]]
"""Adds what computes an operation to the graph; returns the tensors of its results, in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handlers by operation; an operation without one is not supported."""
    return rows(__name__, "HANDLERS")
