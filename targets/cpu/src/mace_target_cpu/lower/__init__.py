"""Lowerings of the core's ops, one family a module; each module offers its own as `LOWERINGS`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from mace_core.kernel_target import Lower


@cache
def lowerings() -> Mapping[str, Lower]:
    """Op name -> lowering, over every module of this folder."""
    table: dict[str, Lower] = {}
    for module in sorted(m.name for m in iter_modules(__path__)):
        found: Mapping[str, Lower] = getattr(import_module(f"{__name__}.{module}"), "LOWERINGS", {})
        assert not table.keys() & found.keys(), f"{module} lowers an op a second time"
        table.update(found)
    return MappingProxyType(table)
