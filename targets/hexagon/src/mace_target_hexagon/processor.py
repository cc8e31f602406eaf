"""The DSP as the processor of its own ABIs: the CPU target's kernels with HVX's vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from mace_core.api import Counter
from mace_core.candidates import Candidate
from mace_core.ir import Array, Graph, Node
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering
from mace_core.numerics import Numerics
from mace_core.program import Call, Program, Weight
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_cpu import Cpu
from mace_target_cpu.quantized import conv
from mace_target_cpu.quantized.depthwise import DEPTHWISE, ChannelOrder, lower_depthwise
from mace_target_hexagon.elementwise import SIGNS, estimate_elements, estimate_sum, lower_sum
from mace_target_hexagon.isa import HVX, LEVELS

REGISTER = 128
"""Bytes of a register of HVX."""


def lower_depthwise_for_hvx(node: Node, lowering: Lowering) -> None:
    """Lower a depthwise convolution of bytes, whose channels keep their order in registers of HVX."""
    lower_depthwise(node, lowering, ChannelOrder(REGISTER, 1))


class Hvx(Cpu):
    """A Hexagon DSP for which a whole library is compiled.

    Its device is "cpu", as `Arm`'s is: for these ABIs it is the processor that computes whatever nothing else
    takes.
    """

    name = "hvx"
    device = "cpu"
    abis: ClassVar[tuple[str, ...]] = ("hexagon-*",)

    def can_round(self, numerics: Numerics) -> bool:
        """Return whether kernels round so; not `reproducible`, which no test compares with other ABIs."""
        return numerics is not Numerics.REPRODUCIBLE and super().can_round(numerics)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """HVX with vectors of 128 bytes, and plain C for DSPs without it."""
        return LEVELS

    def counter(self) -> Counter | None:
        """Return what counts packets in QEMU: its time says nothing of a DSP's."""
        from mace_target_hexagon.packets import PacketCounter  # builds need none

        return PacketCounter()

    @property
    def quantized(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The CPU's lowerings; depthwise convolutions of bytes have a kernel of their own at one level."""
        products = conv.LOWERINGS["Conv"]
        assert not callable(products)
        # The CPU's candidate orders channels by the halves of AVX2's registers; those of HVX are whole.
        depthwise = replace(DEPTHWISE, lower=lower_depthwise_for_hvx, levels=(str(HVX.name),))
        others = (candidate for candidate in products if candidate is not DEPTHWISE)
        return {**super().quantized, "Conv": (depthwise, *others), **self._sums()}

    def _sums(self) -> dict[str, Sequence[Candidate]]:
        """Return the ways to add bytes: by HVX, and that of the CPU."""
        levels = (str(HVX.name),)
        sums: dict[str, Sequence[Candidate]] = {}
        for op in SIGNS:
            plain = super().quantized[op]
            assert callable(plain)
            # Still there for the level without vectors, and for scales that words cannot hold.
            others = Candidate("floats", plain, estimate_elements)
            sums[op] = (Candidate("words", lower_sum, estimate_sum, levels), others)
        return sums

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Leave sums of bytes to their own kernel, whose vectors an epilogue in floats has not."""
        is_sum = first.kernel.template.name == "conv_quantized.c.in"
        return None if is_sum else super().fuse(first, second, tensor)

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        """Return the program of a region, whose weights are as long as whole registers.

        So each of them begins where one can be loaded by one instruction, because a library's constants
        follow each other from such an address on.
        """
        program = super().lower(graph, abi, tuning)
        weights = {name: pad_weight(weight) for name, weight in program.weights.items()}
        return replace(program, weights=weights)


def pad_weight(weight: Weight) -> Weight:
    """Return the weight with zeros behind it up to a whole register."""
    elements = math.prod(weight.shape)
    missing = -weight.bytes % REGISTER
    # Zeros, which products with whatever lies in the same register leave as they are.
    if not missing or not elements:
        return weight
    padding = missing // (weight.bytes // elements)

    def make() -> Array:
        array = weight.make().reshape(-1)
        return np.concatenate([array, np.zeros(padding, array.dtype)])

    return Weight((elements + padding,), weight.bytes + missing, make)
