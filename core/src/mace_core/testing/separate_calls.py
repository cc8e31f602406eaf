"""Targets whose calls are those of their ops, for tests that count calls or compare fused ones."""

from __future__ import annotations

from mace_core.kernel_target import KernelTarget
from mace_core.program import Call


class SeparateCalls(KernelTarget):
    """The first base of a target no call of which does the work of two ops."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        return None
