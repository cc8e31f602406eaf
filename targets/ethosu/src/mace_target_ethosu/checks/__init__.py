"""Checks of the constraints that the compiler states: functions of an operator and of limits.

Each returns None where the operator keeps the constraint, and otherwise what breaks it, as a clause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from mace_target_ethosu.operators import OperatorView

Limits = Mapping[Any, Any]
Check = Callable[[OperatorView, Limits], str | None]


@cache
def all_checks() -> Mapping[str, Check]:
    """Return every check by its name in constraints.yml."""
    # Not at the top, because these modules import the types of this one.
    from mace_target_ethosu.checks import images, products, shapes, types

    modules = (images, products, shapes, types)
    checks = chain.from_iterable(module.CHECKS for module in modules)
    return MappingProxyType({check.__name__: check for check in checks})
