"""How TensorFlow's operators are expressed in the IR: every module in this folder offers its own as `HANDLERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mace_frontend_tensorflow.node import Held, Node

Handler = Callable[["Node"], "str | Sequence[Held]"]
"""Adds what computes a node to the graph and tells what the node's outputs stand for, in their order."""


@cache
def handlers() -> Mapping[str, Handler]:
    """The handler of every operator that has one, by its name."""
    modules = [import_module(f"{__name__}.{name}") for name in sorted(m.name for m in iter_modules(__path__))]
    found = [item for module in modules for item in getattr(module, "HANDLERS", {}).items()]
    table = dict(found)
    assert len(table) == len(found), "two handlers of one operator"
    return MappingProxyType(table)
