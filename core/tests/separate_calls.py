"""A target whose calls are those of its ops, for tests that count calls or tensors."""

from __future__ import annotations

from mace_core.program import Call
from mace_target_cpu import Cpu


class SeparateCalls(Cpu):
    """The CPU target, except that no call does the work of two ops."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        return None
