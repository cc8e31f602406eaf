"""An example: matrix products on levels of an own, with other tiles and another packing than the CPU target's.

Both targets live in one library, each with its own table of kernels: `target=host+cpu-wide`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from mace_core.api import Refusal, Target
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph, Node
from mace_core.levels import Level
from mace_target_cpu import Cpu, is_x86
from mace_target_cpu.isa import KERNELS, VECTOR, CpuLevel, Packing

PANEL = 32
"""Columns of a packed weight matrix that lie together: twice those of the CPU target, whose kernels would read nonsense."""

AVX2 = CpuLevel(
    "avx2",
    ("-mavx2", "-mfma"),
    "has_avx2_and_fma()",
    VECTOR,
    # 3 x 32 is as many registers as the CPU target's 6 x 16: fewer rows suit products of few rows.
    lanes=8,
    rows=3,
    columns=32,
    panel=PANEL,
    probe=KERNELS / "x86.h.in",
)
GENERIC = CpuLevel("generic", (), "", VECTOR, lanes=4, rows=2, columns=16, panel=PANEL)
OPS = ("Conv", "MatMul")


class CpuWide(Cpu):
    """Computes matrix products and convolutions with wide tiles, and leaves all else to others."""

    name = "cpu-wide"
    device = "cpu-wide"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None for what the wide tiles are for, where the CPU's kernels take the node."""
        if node.op.name not in OPS:
            return Refusal("unsupported-op", f"{self.name} computes {' and '.join(OPS)}, not {node.op.name}")
        return super().refuses(node, graph)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """AVX2 with wide tiles where the ABI is x86-64, and plain C everywhere."""
        return (AVX2, GENERIC) if is_x86(abi) else (GENERIC,)

    def parameters(self, level: Level | None) -> Hashable:
        """All levels read panels of one width."""
        return Packing(PANEL)


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the target."""
    return (CpuWide(),)
