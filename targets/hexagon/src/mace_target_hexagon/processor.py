"""The DSP as the processor of its own ABIs: the CPU target's kernels with HVX's vectors."""

from __future__ import annotations

from typing import ClassVar

from mace_core.levels import Level
from mace_target_cpu import Cpu
from mace_target_hexagon.isa import LEVELS


class Hvx(Cpu):
    """A Hexagon DSP for which a whole library is compiled.

    Its device is "cpu", as `Arm`'s is: for these ABIs it is the processor that computes whatever nothing else
    takes.
    """

    name = "hvx"
    device = "cpu"
    abis: ClassVar[tuple[str, ...]] = ("hexagon-*",)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """HVX with vectors of 128 bytes, and plain C for DSPs without it."""
        return LEVELS
