"""The type of a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mace_target_ethosu.operators import OperatorView

Limits = Mapping[Any, Any]
"""Values that a constraint is stated with, as constraints.yml has them."""

Check = Callable[[OperatorView, Limits], str | None]
"""Returns None where an operator keeps the constraint, and otherwise what breaks it, as a clause."""
