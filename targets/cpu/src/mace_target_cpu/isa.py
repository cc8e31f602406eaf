"""The instruction-set levels of this target, as data, and what its lowerings and templates read of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from mace_core.errors import PluginError
from mace_core.levels import Level
from mace_core.lowering import Lowering

KERNELS = files("mace_target_cpu") / "kernels"
VECTOR = KERNELS / "vector.h.in"

PANEL = 16
"""Columns of a packed weight matrix that lie together: the widest tile of all levels; one packing serves."""


@dataclass(frozen=True, kw_only=True)
class CpuLevel(Level):
    """A level as the kernels of this target are written for it.

    lanes: floats in one vector of the compiler, 4 or 8; without vector units 4, which the compiler splits.
    rows, columns: the tile of results that the matrix kernels keep in registers.
    panel: columns of a packed weight matrix that lie together.

    PluginError where the matrix kernels could not be compiled for these numbers, or would read beside their
    panel.
    """

    lanes: int
    rows: int
    columns: int
    panel: int = PANEL

    def __post_init__(self) -> None:
        super().__post_init__()
        # integer.h.in and copy_tiles.c.in are written for these two.
        if self.lanes not in (4, 8):
            problem = f"its vectors hold {self.lanes} floats; kernels are written for 4 and 8"
            raise PluginError(f"level {self.name}", problem, "use 4 for a processor without vector units")
        # gemm.h.in walks a panel in whole tiles, and a tile in whole registers; a remainder would belong to
        # the next panel.
        if self.columns % self.lanes or self.panel % self.columns:
            widths = f"panel {self.panel}, tile {self.columns} and register {self.lanes}"
            problem = f"its widths ({widths} floats) do not divide each other"
            remedy = "let a panel hold whole tiles, and a tile whole registers"
            raise PluginError(f"level {self.name}", problem, remedy)


@dataclass(frozen=True)
class Packing:
    """How weights are packed for a level; what `Lowering.parameters` holds for lowerings of this target."""

    panel: int = PANEL


def panel_width(lowering: Lowering) -> int:
    """The columns of a packed weight matrix that lie together, for the level that calls are made for."""
    packing = lowering.parameters
    if not isinstance(packing, Packing):
        problem = "lowerings of mace_target_cpu were called by a target whose parameters() returns no Packing"
        raise PluginError(
            "mace_target_cpu", problem, "derive the target from mace_target_cpu.Cpu, or return a Packing"
        )
    return packing.panel


X86 = (
    CpuLevel(
        "avx2",
        ("-mavx2", "-mfma"),
        "has_avx2_and_fma()",
        VECTOR,
        # 16 registers of 8 floats: 6 x 16 is 12 of them, and leaves 2 for a row of weights and 2 for values
        # of the input.
        lanes=8,
        rows=6,
        columns=16,
        probe=KERNELS / "x86.h.in",
    ),
    # 16 registers of 4 floats: 4 x 8 is 8 of them, and leaves 2 for a row of weights and 6 for values of the
    # input.
    CpuLevel("sse2", (), "", VECTOR, lanes=4, rows=4, columns=8),
)
GENERIC = (CpuLevel("generic", (), "", VECTOR, lanes=4, rows=4, columns=8),)
