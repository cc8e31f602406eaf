"""How Caffe's layers are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mace_frontend_caffe.node import Node

Handler = Callable[["Node"], "str | Sequence[str]"]
"""Adds what computes a node to the graph and tells the tensors that hold the node's outputs, in their order."""


@cache
def handlers() -> Mapping[str, Handler]:
    """The handler of every layer type that has one."""
    modules = [import_module(f"{__name__}.{name}") for name in sorted(m.name for m in iter_modules(__path__))]
    found = [item for module in modules for item in getattr(module, "HANDLERS", {}).items()]
    table = dict(found)
    assert len(table) == len(found), "two handlers of one type"
    return MappingProxyType(table)
