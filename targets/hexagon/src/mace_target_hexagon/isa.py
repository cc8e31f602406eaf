"""The instruction-set levels of the Hexagon DSP, as data."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

from mace_target_cpu.isa import VECTOR, CpuLevel

KERNELS = files("mace_target_hexagon") / "kernels"

PANEL = 32
"""Columns of a packed matrix that lie together: the words of a register."""

REPLACED = ("igemm_bytes.h.in", "conv_depthwise_bytes.c.in", "quantize.c.in", "table.c.in", "half.c.in")
"""Templates of the CPU target for which there are others with instructions of HVX."""

# HVX has no floats before version 68: the compiler splits vectors of four into scalars, and 2 x 4 sums with
# four vectors of widened weights, as products of 16 bits have them, take 24 of the 32 scalar registers.
HVX = CpuLevel(
    "hvx",
    ("-mhvx",),
    "has_hvx()",
    VECTOR,
    lanes=4,
    rows=2,
    columns=4,
    panel=PANEL,
    dot="vrmpy",
    by_scalar=True,
    probe=KERNELS / "hexagon.h.in",
    helpers=tuple(KERNELS / name for name in ("hvx.h.in", "quads.h.in", "l2fetch.h.in", "transpose.h.in")),
    replaces=tuple(KERNELS / name for name in REPLACED),
)
# A phone has DSPs without vector units too (that of its audio), and a process may find all of them taken.
# Weights lie as for HVX, so that a library holds them once.
PLAIN = CpuLevel("plain", (), "", VECTOR, lanes=4, rows=2, columns=4, panel=PANEL, by_scalar=True)

# Units for floats, from version 68 on: 4 x 4 sums beside weights, values and products in 32 registers.
# Executed nowhere, so that a library has it only where its deployment file says so.
HVX_QF = replace(
    HVX,
    name="hvx_qf",
    flags=("-mhvx", "-mhvx-qfloat"),
    rows=4,
    columns=4 * PANEL,
    helpers=(*HVX.helpers, KERNELS / "qf.h.in"),
    has_qf=True,
)

WITH_QF = ("hexagon-v68", "hexagon-v69", "hexagon-v73")
"""ABIs whose vector units compute floats."""

LEVELS = (HVX, PLAIN)
