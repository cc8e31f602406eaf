"""The levels of x86-64 for any processor with AVX2: instructions that it lacks are functions in C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mace_core.testing.processor import levels_here
from mace_target_cpu.isa import AVX2_FLAGS, X86, CpuLevel

EMULATION = Path(__file__).with_name("emulated_avx512.h")

_HERE = {str(level.name): level for level in levels_here(X86) if isinstance(level, CpuLevel)}


def _emulate(level: CpuLevel) -> CpuLevel:
    """Return the level as it is if this processor has it, else with functions for its instructions."""
    if level.name in _HERE:
        return level
    return replace(level, available="", probe=None, flags=(*AVX2_FLAGS, "-include", str(EMULATION)))


LEVELS = {str(level.name): _emulate(level) for level in X86} if "avx2" in _HERE else _HERE
"""The levels that run here by name; without AVX2 none is emulated."""
