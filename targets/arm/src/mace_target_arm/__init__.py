"""ARM CPUs: the CPU target's kernels with NEON's vectors and tiles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from mace_core.api import Target
from mace_core.hookspecs import hookimpl
from mace_core.levels import Level
from mace_target_arm.isa import AARCH32, AARCH64
from mace_target_cpu import Cpu


class Arm(Cpu):
    """64-bit and 32-bit ARM, Linux and Android."""

    name = "arm"
    device = "cpu"
    abis: ClassVar[tuple[str, ...]] = (*AARCH64.abis, *AARCH32.abis)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """NEON, with the registers that the ABI's processors have."""
        return AARCH32.levels if abi in AARCH32.abis else AARCH64.levels


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer ARM CPUs."""
    return (Arm(),)
