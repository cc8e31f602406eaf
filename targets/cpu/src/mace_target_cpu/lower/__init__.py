"""Lowerings of the core's ops, one family a module; each module offers its own as `LOWERINGS`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from mace_core.kernel_target import Lower


@cache
def lowerings(package: str) -> Mapping[str, Lower]:
    """Op name -> lowering, over every module of a package."""
    table: dict[str, Lower] = {}
    for module in sorted(m.name for m in iter_modules(import_module(package).__path__)):
        found: Mapping[str, Lower] = getattr(import_module(f"{package}.{module}"), "LOWERINGS", {})
        assert not table.keys() & found.keys(), f"{module} lowers an op a second time"
        table.update(found)
    return MappingProxyType(table)
