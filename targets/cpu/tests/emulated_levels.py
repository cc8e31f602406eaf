"""The levels of x86-64 for any processor with AVX2: instructions that it lacks are functions in C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mace_core.testing.processor import levels_here
from mace_target_cpu.isa import AVX2_FLAGS, GENERIC, MAX_LANES, X86, CpuLevel

EMULATION = Path(__file__).with_name("emulated_avx512.h")

_HERE = {str(level.name): level for level in levels_here((*X86, *GENERIC)) if isinstance(level, CpuLevel)}


def emulate(level: CpuLevel) -> CpuLevel:
    """Return a level with functions for the instructions that AVX2 lacks.

    Sanitizers see what these read and write, and not what masked instructions of the processor do.
    """
    return replace(level, available="", probe=None, flags=(*AVX2_FLAGS, "-include", str(EMULATION)))


def quiet(level: CpuLevel) -> CpuLevel:
    """Return a level without warnings: compilers warn of emulated instructions."""
    return replace(level, flags=(*level.flags, "-w"))


_SSE2, _AVX2 = (next(level for level in X86 if level.name == name) for name in ("sse2", "avx2"))

_OTHERS = (
    # Products by a lane of a register, as NEON's: its branch of gemm.h.in is plain C. Other templates ask for AVX2
    # before they ask for NEON.
    replace(_AVX2, name="by_lane", flags=(*AVX2_FLAGS, "-D__ARM_NEON"), rows=8, by_lane=True, registers=32),
    # Pairs instead of quads, and what the intrinsics of all processors do, in plain C.
    replace(_SSE2, name="plain_pairs", flags=("-U__SSE2__",), depth_step=2),
    replace(_SSE2, name="plain_quads", flags=("-U__SSE2__",)),
)
"""Levels that no processor of this kind has, for the branches of kernels that are written for others."""

LEVELS = dict(_HERE)
if "avx2" in _HERE:
    LEVELS = {str(level.name): emulate(level) for level in (*X86, *GENERIC)} | _HERE

SEEN = {name: quiet(emulate(level) if level.lanes == MAX_LANES else level) for name, level in LEVELS.items()}
"""The levels of x86-64 for sanitizers, which do not see what masked instructions of a processor read and write:
those of AVX-512 are emulated even where the processor has them."""

SEEN_FLOATS = {name: level for name, level in SEEN.items() if name not in ("avxvnni", "avx512vnni", "amx")}
"""Those that differ in floats: the others compute them as levels before them do."""

LEVELS |= {str(level.name): level for level in _OTHERS}
"""The levels that run here by name; without AVX2 none of x86-64 is emulated."""

QUIET = {name: quiet(level) for name, level in LEVELS.items()}
"""The same without warnings."""
