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
    """Return every op of the core by name."""
    # Modules are searched for, not listed, so that a new op is one new file; sorted, so that the order of the
    # table does not depend on the file system.
    ops: list[Op] = []
    for name in sorted(module.name for module in iter_modules(__path__)):
        ops += getattr(import_module(f"{__name__}.{name}"), "OPS", ())
    table = {op.name: op for op in ops}
    assert len(table) == len(ops), "two ops of the core share a name"
    return MappingProxyType(table)
