"""ARM CPUs: the CPU target's kernels with NEON's vectors and tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from mace_core.api import Counter, Target
from mace_core.candidates import Candidate
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.levels import Level
from mace_core.lowering import Lower
from mace_core.program import Call, Program
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_arm.isa import AARCH32, AARCH64, Family
from mace_target_cpu import Cpu


class Arm(Cpu):
    """64-bit and 32-bit ARM, Linux and Android.

    `arithmetic` may be "f16" too, the type in which products of halves are summed.
    """

    name = "arm"
    device = "cpu"
    abis: ClassVar[tuple[str, ...]] = (*AARCH64.abis, *AARCH32.abis)
    arithmetics = (*Cpu.arithmetics, "f16")

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        """Return the program of a region; MaceError where `arithmetic: f16` would do nothing."""
        if self.arithmetic == "f16":
            from mace_target_arm.options import need_half_sums

            need_half_sums(graph, abi, self.levels(abi))
        return super().lower(graph, abi, tuning)

    def varies(self, call: Call) -> str | None:
        """Tell those of the CPU, and sums in half precision, which not every level has."""
        if str(call.kernel.name) == "conv_f16_half_sums":
            return f"kernel {call.kernel.name} sums in half precision where a level can"
        return super().varies(call)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """NEON, with the registers that the ABI's processors have, and products of bytes for 64 bits."""
        return _family(abi).levels

    def known_levels(self, abi: str) -> tuple[Level, ...]:
        """All levels of the ABI, those for newer processors too."""
        levels = self.levels(abi)
        # A target that derives from this one has levels of its own.
        return _family(abi).known if levels is _family(abi).levels else levels

    @property
    def quantized(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The CPU's lowerings, and kernels of bytes for depthwise convolutions."""
        return _add_depthwise(super().quantized)

    @property
    def fixed_point(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The same for `numerics: tflite-reference`."""
        return _add_depthwise(super().fixed_point)

    @property
    def halves(self) -> Mapping[str, Lower]:  # type: ignore[override]
        """Kernels of half precision, for 64-bit processors."""
        from mace_target_arm.halves import HALF_SUMS, HALVES  # read on first use, as the lowerings are

        return HALF_SUMS if self.arithmetic == "f16" else HALVES

    def counter(self) -> Counter:
        """Count instructions where QEMU executes a library."""
        from mace_target_arm.instructions import InstructionCounter  # where it is asked for

        return InstructionCounter()


def _add_depthwise(
    lowerings: Mapping[str, Lower | Sequence[Candidate]],
) -> Mapping[str, Lower | Sequence[Candidate]]:
    from mace_target_arm.depthwise import DEPTHWISE  # read on first use, as the lowerings are

    products = lowerings["Conv"]
    assert not callable(products)
    return {**lowerings, "Conv": (*DEPTHWISE, *products)}


def _family(abi: str) -> Family:
    return AARCH32 if abi in AARCH32.abis else AARCH64


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer ARM CPUs."""
    return (Arm(),)
