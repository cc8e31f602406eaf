"""Element-wise steps that a kernel computes on each result before it stores it."""

from __future__ import annotations

from dataclasses import dataclass

from mace_core.emit.text import CIdentifier, Code
from mace_target_opencl.views import View

NAMES = ("x", "y", "z")
"""What an expression calls the arguments of its step."""


@dataclass(frozen=True)
class Lookup:
    """An operand that a step loads.  view: where, for the flat index of the result."""

    operand: CIdentifier
    view: View


@dataclass(frozen=True)
class ElementStep:
    """One element-wise op.

    expression: the result, of one element of each argument, which it calls x, y and z; any C expression.
    arguments: None for the result of the step before, else what is loaded.
    type: C type of the result.
    """

    expression: Code
    arguments: tuple[Lookup | None, ...]
    type: Code
