"""The instruction-set levels of this target, as data, and what its lowerings and templates read of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable

from mace_core.errors import PluginError
from mace_core.levels import Level
from mace_core.lowering import Lowering

KERNELS = files("mace_target_cpu") / "kernels"
VECTOR = KERNELS / "vector.h.in"

MAX_LANES = 16
"""Floats of the widest vector of all levels: what kernels may read behind a row of their scratch."""

PANEL = 16
"""Columns of a packed weight matrix that lie together: the widest tile of all levels; one packing serves."""

DOTS = ("pairs", "quads", "vnni", "vrmpy", "smull", "sdot", "smmla")
"""The ways to sum products of bytes that kernels are written for, see `CpuLevel.dot`."""


@dataclass(frozen=True, kw_only=True)
class CpuLevel(Level):
    """A level as the kernels of this target are written for it.

    lanes: floats in one vector of the compiler, 4, 8 or 16; without vector units 4, which the compiler
    splits.
    rows, columns: the tile of results that the matrix kernels of floats keep in registers. A tile may be
    several panels wide.
    panel: columns of a packed weight matrix that lie together.
    by_lane: whether products multiply by a lane of a register, as NEON's do: values of the left factor are
    then loaded as vectors.  registers: vector registers, which bound the tiles of such products.
    depth_step: elements of a column that lie together in a packed matrix of bytes, 2 or 4.
    dot: how products of bytes are summed in 32 bits: "pairs" in 16 bits after widening, "quads" by vpmaddubsw
    where it is proven to be exact and else as two pairs that shifts take out of four bytes, "vnni" four at a
    time and exactly (vpdpbusd), "vrmpy" too, with four bytes of the left factor in a scalar register, "sdot"
    too, of signed bytes, and "smmla" two rows by two columns of them; "smull" one at a time to 16 bits, then
    pairs to 32.
    is_signed: whether bytes of the left factor are multiplied as signed ones, which biases are made for.
    by_scalar: whether packed matrices are those of levels with "vrmpy": it multiplies unsigned bytes only, so
    theirs have 128 in them, and scalar registers load four bytes from multiples of four only.
    byte_tiles, float_tiles: whether it multiplies tiles of bytes (AMX, SME) or of floats (SME) besides.
    bfloat_tiles: whether it multiplies tiles of bfloat16 (AMX), and rounds floats to it by an instruction.
    half_products: how kernels multiply numbers in half precision, with sums of floats: "widened" when they
    are loaded, or "fmlal" as they are; "" for levels that compute them as floats, between conversions.
    half_sums: whether it multiplies and adds vectors of eight halves, rounded to half precision, besides.
    is_x86: whether only processors of x86-64 have it, so that templates leave out what is for others.
    reads_lines: whether windows of few channels are read from copied lines, see `lower/lines.py`: where a
    product by a value in memory costs no more than one by a lane.
    has_qf: whether products of floats are those of Hexagon's vector units, which keep sums in a format of
    their own: helpers of the level define `qf_add_product` and the like for registers of a panel.

    PluginError where the matrix kernels could not be compiled for these numbers, or would read beside their
    panel.
    """

    lanes: int
    rows: int
    columns: int
    panel: int = PANEL
    by_lane: bool = False
    registers: int = 16
    depth_step: int = 4
    dot: str = "pairs"
    by_scalar: bool = False
    is_signed: bool = False
    byte_tiles: bool = False
    float_tiles: bool = False
    bfloat_tiles: bool = False
    half_products: str = ""
    half_sums: bool = False
    is_x86: bool = False
    reads_lines: bool = False
    has_qf: bool = False
    peak: Traversable | None = KERNELS / "peak.c"

    @property
    def float_lanes(self) -> int:
        """Floats in a register of matrix products."""
        return self.panel if self.has_qf else self.lanes

    def __post_init__(self) -> None:
        super().__post_init__()
        # integer.h.in is written for these.
        if self.lanes not in (4, 8, MAX_LANES):
            problem = f"its vectors hold {self.lanes} floats; kernels are written for 4, 8 and 16"
            raise PluginError(f"level {self.name}", problem, "use 4 for a processor without vector units")
        # gemm.h.in walks a panel in whole tiles or a tile in whole panels, and both in whole registers; a
        # remainder would belong to the next panel.
        narrow, wide = sorted((self.panel, self.columns))
        if wide % narrow or narrow % self.lanes:
            widths = f"panel {self.panel}, tile {self.columns} and register {self.lanes}"
            problem = f"its widths ({widths} floats) do not divide each other"
            remedy = "let a panel hold whole tiles or a tile whole panels, and both whole registers"
            raise PluginError(f"level {self.name}", problem, remedy)
        # integer.h.in loads pairs with NEON and quads everywhere else.
        if self.depth_step not in (2, 4):
            problem = f"{self.depth_step} elements of a column lie together in its matrices of bytes"
            raise PluginError(f"level {self.name}", problem, "let 4 lie together, or 2 for NEON")
        if self.dot not in DOTS:
            problem = f"its products of bytes are summed as {self.dot!r}"
            raise PluginError(f"level {self.name}", problem, f"choose one of {', '.join(DOTS)}")


@dataclass(frozen=True)
class Packing:
    """How weights are packed for a level; what `Lowering.parameters` holds for lowerings of this target.

    has_halves: whether kernels read weights in half precision, see `CpuLevel.half_products`.
    reads_lines: whether windows of few channels are read from copied lines, see `CpuLevel`.
    """

    panel: int = PANEL
    depth_step: int = 4
    by_scalar: bool = False
    is_signed: bool = False
    has_halves: bool = False
    reads_lines: bool = True

    @property
    def offset(self) -> int:
        """What packed matrices of int8 have in them besides."""
        return 128 if self.by_scalar else 0

    def shift(self, is_signed: bool) -> int:
        """What kernels add to bytes of the left factor before they multiply them.

        is_signed: whether the bytes are int8, else they are uint8.
        """
        if is_signed == self.is_signed:
            return 0
        return 128 if is_signed else -128


def panel_width(lowering: Lowering) -> int:
    """The columns of a packed weight matrix that lie together, for the level that calls are made for."""
    return packing(lowering).panel


def packing(lowering: Lowering) -> Packing:
    """How weights are packed for the level that calls are made for."""
    parameters = lowering.parameters
    if not isinstance(parameters, Packing):
        problem = "lowerings of mace_target_cpu were called by a target whose parameters() returns no Packing"
        raise PluginError(
            "mace_target_cpu", problem, "derive the target from mace_target_cpu.Cpu, or return a Packing"
        )
    return parameters


AVX2_FLAGS = ("-mavx2", "-mfma")
# Lines that are fetched to be written come as this core's own, or storing would ask other cores once more:
# first layers took up to 1.5 times on several threads of a Xeon. All processors with AVX-512 have PREFETCHW.
AVX512_FLAGS = (*AVX2_FLAGS, "-mprfchw", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")

# 32 registers of 16 floats: 6 x 64 is 24 of them, and leaves 4 for a row of weights and 4 for values of the
# input. Measured at 99 % of the peak with all in the first-level cache, 12 x 32 at 95 %: its rows lie
# multiples of 4 KB apart in many networks, and 12 of them fill all ways of that cache.
AVX512 = CpuLevel(
    "avx512",
    AVX512_FLAGS,
    "has_avx512()",
    VECTOR,
    lanes=16,
    rows=6,
    columns=64,
    is_x86=True,
    reads_lines=True,
    probe=KERNELS / "x86.h.in",
)
# 16 registers of 8 floats: 6 x 16 is 12 of them, and leaves 2 for a row of weights and 2 for values of the
# input.
AVX2 = CpuLevel(
    "avx2",
    AVX2_FLAGS,
    "has_avx2_and_fma()",
    VECTOR,
    lanes=8,
    rows=6,
    columns=16,
    dot="quads",
    is_x86=True,
    reads_lines=True,
    probe=KERNELS / "x86.h.in",
)
AVX512_VNNI = replace(
    AVX512,
    name="avx512vnni",
    flags=(*AVX512_FLAGS, "-mavx512vnni"),
    available="has_avx512_vnni()",
    dot="vnni",
)
X86 = (
    replace(
        AVX512_VNNI,
        name="amx",
        flags=(*AVX512_VNNI.flags, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
        available="has_amx()",
        byte_tiles=True,
        bfloat_tiles=True,
    ),
    AVX512_VNNI,
    AVX512,
    replace(AVX2, name="avxvnni", flags=(*AVX2_FLAGS, "-mavxvnni"), available="has_avx_vnni()", dot="vnni"),
    AVX2,
    # 16 registers of 4 floats: 4 x 8 is 8 of them, and leaves 2 for a row of weights and 6 for values of the
    # input.
    CpuLevel("sse2", (), "", VECTOR, lanes=4, rows=4, columns=8, is_x86=True, reads_lines=True),
)
"""The levels of x86-64, the best first."""

X86_DEFAULT = tuple(level for level in X86 if level.name in ("avx512vnni", "avx2", "sse2"))
"""Those that a library holds: for processors with AVX-512 and VNNI, for those with AVX2, for all others."""

GENERIC = (CpuLevel("generic", (), "", VECTOR, lanes=4, rows=4, columns=8),)
