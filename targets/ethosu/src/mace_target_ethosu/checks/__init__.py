"""Checks of the constraints that the compiler states: functions of an operator and of limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import chain
from types import MappingProxyType

from mace_target_ethosu.checks import images, products, shapes, types
from mace_target_ethosu.checks.check import Check


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check by its name in constraints.yml."""
    modules = (images, products, shapes, types)
    checks = chain.from_iterable(module.CHECKS for module in modules)
    return MappingProxyType({check.__name__: check for check in checks})
