"""Reads what `ncc-tflite --show-exec-plan` and `--check-target-only` print, as far as the format is known.

The vendor publishes no format, and no output was at hand. Known from public scripts that search such logs,
and from messages that users quote, are three kinds of lines: `OP[3]: CONV_2D` begins an operation;
`Target: MDLA_3_0` names the unit that computes it; `MDLA: unsupported operation` says that a unit does not.
Whether a plan names a group of operations by a line of its own is not known. Every other line is kept, so
that a reader sees what was not understood.
"""

from __future__ import annotations

import re

from mace_core.errors import MaceError
from mace_core.lint import PlannedOperation, VendorPlan

# Lines may begin with spaces and the branches of a drawn tree, which the patterns skip.
OPERATION = re.compile(r"\W*OP\[\d{1,9}\]:\s*([A-Z][A-Z0-9_]*)\b")
UNIT = re.compile(r"\W*Target:\s*([A-Za-z][A-Za-z0-9_.]*)\s*$")
REFUSED_UNIT = re.compile(r"\W*([A-Z][A-Z0-9_]*):\s*(?:unsupported|not supported)\b", re.IGNORECASE)
OURS = re.compile(r"MDLA\b|MDLA_\d|mdla\d")


def read_plan(text: str) -> VendorPlan:
    """Return the operations of a plan with their units; MaceError for a text without any operation."""
    operations: list[PlannedOperation] = []
    unread: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        if match := OPERATION.match(line):
            operations.append(PlannedOperation(match[1], ""))
        elif (match := UNIT.match(line)) and operations:
            operations[-1] = PlannedOperation(operations[-1].operator, match[1])
        elif (match := REFUSED_UNIT.match(line)) and operations:
            operations[-1] = _refuse_unit(operations[-1], match[1])
        else:
            unread.append(line.strip())
    if not operations:
        raise MaceError(
            "--diff",
            "no line of the text begins with OP[number]: OPERATOR",
            "give the output of ncc-tflite with --show-exec-plan; another format is not known",
        )
    units = frozenset(operation.unit for operation in operations if OURS.match(operation.unit))
    return VendorPlan(tuple(operations), units, tuple(unread))


def _refuse_unit(operation: PlannedOperation, unit: str) -> PlannedOperation:
    """Note that a unit refuses an operation, unless the plan names the unit that computes it."""
    return operation if operation.unit else PlannedOperation(operation.operator, f"not {unit}")
