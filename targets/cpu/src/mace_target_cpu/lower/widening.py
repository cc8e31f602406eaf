"""The kernels that restore weights which a library stores in half precision or without their zeros."""

from __future__ import annotations

from mace_core.compact_weights import FIELDS, WideningKernels
from mace_core.program import Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import HALF_BITS

EXPAND = KERNELS / "expand_sparse.c.in"

WIDENING = WideningKernels(
    f16=Kernel("widen_f16", KERNELS / "widen_f16.c.in", FIELDS, helpers=(HALF_BITS,)),
    sparse=Kernel("expand_sparse_f32", EXPAND, FIELDS, {"half": False}),
    sparse_f16=Kernel("expand_sparse_f16", EXPAND, FIELDS, {"half": True}, (HALF_BITS,)),
)
