"""How each op of the IR is stated: a module for each family, a function for each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from mace_tflite_writer.operator import BuiltinOperator, NodeView

Statement = Callable[[NodeView], BuiltinOperator]
"""Returns the operator that computes just what a node does; raises `Refused` if there is none."""


@cache
def statements() -> Mapping[str, Statement]:
    """Return the function for each op by the op's name."""
    # Modules are searched for, not listed, so that a new family is one new file.
    table: dict[str, Statement] = {}
    for name in sorted(module.name for module in iter_modules(__path__)):
        table |= import_module(f"{__name__}.{name}").STATEMENTS
    return MappingProxyType(table)
