"""Tables whose rows lie in the modules of a package, each module offering its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, TypeAlias

Function: TypeAlias = Callable[..., Any]


@cache
def rows(package: str, name: str) -> Mapping[str, Function]:
    """All entries of the mappings called `name` in a package's modules.

    Two modules that offer one key are a bug.
    """
    table: dict[str, Function] = {}
    for module in sorted(m.name for m in iter_modules(import_module(package).__path__)):
        registered: Mapping[str, Function] = getattr(import_module(f"{package}.{module}"), name, {})
        assert not table.keys() & registered.keys(), (
            f"{package}.{module} offers {sorted(table.keys() & registered.keys())} a second time"
        )
        table.update(registered)
    return MappingProxyType(table)
