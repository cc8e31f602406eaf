"""How Keras's layers and operations are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mace_frontend_keras.node import Node

Handler = Callable[["Node"], Sequence[str]]
"""Adds what computes a call to the graph and tells the tensors that hold its results, in their order."""


@cache
def handlers() -> Mapping[str, Handler]:
    """The handler of every kind of layer that has one."""
    modules = [import_module(f"{__name__}.{name}") for name in sorted(m.name for m in iter_modules(__path__))]
    found = [item for module in modules for item in getattr(module, "HANDLERS", {}).items()]
    table = dict(found)
    assert len(table) == len(found), "two handlers of one kind"
    return MappingProxyType(table)
