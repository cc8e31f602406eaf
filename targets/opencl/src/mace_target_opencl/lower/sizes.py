"""How many work-items share a group."""

from __future__ import annotations

from mace_target_opencl.enqueue import GROUP

MAX_COLUMNS = 16
"""Work-items along the first axis, which read neighboring columns or channels."""


def square_group(columns: int) -> tuple[int, int, int]:
    """Return a group of work-items for so many along the first axis, and rows along the second."""
    across = 1
    while across < columns and across < MAX_COLUMNS:
        across *= 2
    return across, GROUP // across, 1
