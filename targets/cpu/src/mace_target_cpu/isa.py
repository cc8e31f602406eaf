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
        '__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")',
        VECTOR,
        lanes=8,
        rows=6,
        columns=16,
    ),
    Isa("sse2", (), "", VECTOR, lanes=4, rows=4, columns=8),
)
GENERIC = (Isa("generic", (), "", VECTOR, lanes=4, rows=4, columns=8),)
