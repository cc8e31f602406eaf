"""The instruction-set levels of ARM, as data; registers as in the Arm Architecture Reference Manual."""

from __future__ import annotations

from dataclasses import dataclass

from mace_target_cpu.isa import VECTOR, CpuLevel


@dataclass(frozen=True)
class Family:
    """ABIs whose processors have the same registers, and the levels that a library for them holds."""

    abis: tuple[str, ...]
    levels: tuple[CpuLevel, ...]


# 32 registers of 4 floats: a tile of 6 x 16 is 24 of them, and leaves 6 for values of the input, 4 of each
# row, and 2 for weights.
AARCH64 = Family(
    ("arm64-v8a", "arm64"),
    (
        CpuLevel(
            "neon", (), "", VECTOR, lanes=4, rows=6, columns=16, depth_step=2, by_lane=True, registers=32
        ),
    ),
)

# 16 registers of 4 floats: 4 x 8 is 8 of them, and leaves 2 for a row of weights and 4 for values of the
# input. That processors have NEON is part of these ABIs, so their toolchains say so to the compiler and no
# flag is needed here.
AARCH32 = Family(
    ("armeabi-v7a", "armhf"),
    (CpuLevel("neon", (), "", VECTOR, lanes=4, rows=4, columns=8, depth_step=2, by_lane=True),),
)
