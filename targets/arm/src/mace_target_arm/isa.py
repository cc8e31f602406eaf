"""The instruction-set levels of ARM, as data; registers as in the Arm Architecture Reference Manual."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files

from mace_target_cpu.isa import VECTOR, CpuLevel

KERNELS = files("mace_target_arm") / "kernels"


@dataclass(frozen=True)
class Family:
    """ABIs whose processors have the same registers, and their levels.

    known: all of them, the best first.  levels: those that a library holds by default.
    """

    abis: tuple[str, ...]
    known: tuple[CpuLevel, ...]
    levels: tuple[CpuLevel, ...]


# 32 registers of 4 floats: a tile of 6 x 16 is 24 of them, and leaves 6 for values of the input, 4 of each
# row, and 2 for weights. Bytes are signed at all levels, because sdot has no unsigned factor beside a signed
# one, so that they share weights and biases.
NEON = CpuLevel(
    "neon",
    (),
    "",
    VECTOR,
    lanes=4,
    rows=6,
    columns=16,
    by_lane=True,
    registers=32,
    is_signed=True,
    dot="smull",
    half_products="widened",
    helpers=(KERNELS / "round_bytes.h.in", KERNELS / "halves.h.in"),
    replaces=(KERNELS / "igemm_bytes.h.in", KERNELS / "half.c.in"),
)
# -mcpu and not -march: gcc and clang read it alike, zig has no other.
DOT_PRODUCT = replace(
    NEON,
    name="dotprod",
    flags=("-mcpu=generic+dotprod",),
    available="has_dot_product()",
    dot="sdot",
    probe=KERNELS / "arm.h.in",
)
BYTE_MATRICES = replace(
    DOT_PRODUCT,
    name="i8mm",
    flags=("-mcpu=generic+dotprod+i8mm",),
    available="has_byte_matrices()",
    dot="smmla",
    byte_tiles=True,
    replaces=(*DOT_PRODUCT.replaces, KERNELS / "smmla" / "igemm_tiles.h.in"),
)
# FEAT_FP16 alone, as Cortex-A55 to A78 have it. gcc calls it fp16 and zig fullfp16, so the flag names an
# extension that both know and that contains it. No compiler makes fmlal of anything but its intrinsic, which
# this level has not; a test looks for it.
HALF_SUMS = replace(
    DOT_PRODUCT,
    name="fp16",
    flags=("-mcpu=generic+dotprod+fp16fml",),
    available="has_half_sums()",
    half_sums=True,
)
# ARMv8.4 and later.
HALF_PRODUCTS = replace(
    HALF_SUMS,
    name="fp16fml",
    available="has_half_products()",
    half_products="fmlal",
)
# No flags of its own: instructions of the extension are written as assembly, which names it to the assembler,
# and code outside of streaming mode may not use them.
SME = replace(
    DOT_PRODUCT,
    name="sme",
    available="has_outer_products()",
    byte_tiles=True,
    float_tiles=True,
    helpers=(*DOT_PRODUCT.helpers, KERNELS / "streaming.h.in"),
    replaces=(*DOT_PRODUCT.replaces, KERNELS / "igemm_tiles.h.in", KERNELS / "gemm_tiles.h.in"),
)
AARCH64 = Family(
    ("arm64-v8a", "arm64"),
    (SME, BYTE_MATRICES, HALF_PRODUCTS, HALF_SUMS, DOT_PRODUCT, NEON),
    (DOT_PRODUCT, NEON),
)

# 16 registers of 4 floats: 4 x 8 is 8 of them, and leaves 2 for a row of weights and 4 for values of the
# input. That processors have NEON is part of these ABIs, so their toolchains say so to the compiler and no
# flag is needed here.
# Conversions of half precision are an extension there (VFPv3-FP16), which not every processor with NEON has.
NEON32 = replace(
    NEON,
    rows=4,
    columns=8,
    registers=16,
    half_products="",
    helpers=(KERNELS / "round_bytes.h.in", KERNELS / "load_pair.h.in"),
    replaces=(KERNELS / "igemm_bytes.h.in",),
)
AARCH32 = Family(("armeabi-v7a", "armhf"), (NEON32,), (NEON32,))
