"""Expresses Caffe's layers in the IR: every module of this folder offers its handlers as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mace_core.tables import rows
from mace_frontend_caffe.node import CaffeNode

Handler = Callable[[CaffeNode], str | Sequence[str]]
"""Adds what computes a layer to the graph; returns the tensors that hold its tops, in their order."""


def handlers() -> Mapping[str, Handler]:
    """Return the handler of every layer type that has one."""
    return rows(__name__, "HANDLERS")
