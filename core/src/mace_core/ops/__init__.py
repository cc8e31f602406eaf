"""Core's operators: every module in this folder offers its own as `OPS`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from mace_core.ops.op import Op


@cache
def core_ops() -> Mapping[str, Op]:
    """Every op of the core by name."""
    modules = sorted(m.name for m in iter_modules(__path__))
    found = [op for name in modules for op in getattr(import_module(f"{__name__}.{name}"), "OPS", ())]
    table = {op.name: op for op in found}
    assert len(table) == len(found), "two ops of the core share a name"
    return MappingProxyType(table)
