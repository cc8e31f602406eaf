"""The instruction-set levels of this target, as data."""

from __future__ import annotations

from importlib.resources import files

from mace_core.kernel_target import Isa

KERNELS = files("mace_target_cpu") / "kernels"
VECTOR = KERNELS / "vector.h.in"

X86 = (
    Isa(
        "avx2",
        ("-mavx2", "-mfma"),
        "has_avx2_and_fma()",
        VECTOR,
        lanes=8,
        rows=6,
        columns=16,
        probe=KERNELS / "x86.h.in",
    ),
    Isa("sse2", (), "", VECTOR, lanes=4, rows=4, columns=8),
)
GENERIC = (Isa("generic", (), "", VECTOR, lanes=4, rows=4, columns=8),)
