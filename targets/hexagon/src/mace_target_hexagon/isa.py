"""The instruction-set levels of the Hexagon DSP, as data."""

from __future__ import annotations

from importlib.resources import files

from mace_target_cpu.isa import VECTOR, CpuLevel

KERNELS = files("mace_target_hexagon") / "kernels"

# HVX has no floats before version 68: the compiler splits vectors of four into scalars, and 4 x 4 sums with a
# row of weights and a value of the input take 21 of the 32 scalar registers.
HVX = CpuLevel(
    "hvx",
    ("-mhvx",),
    "has_hvx()",
    VECTOR,
    lanes=4,
    rows=4,
    columns=4,
    probe=KERNELS / "hexagon.h.in",
)
# A phone has DSPs without vector units too (that of its audio), and a process may find all of them taken.
PLAIN = CpuLevel("plain", (), "", VECTOR, lanes=4, rows=4, columns=4)

LEVELS = (HVX, PLAIN)
