"""The DSP as the processor of its own ABIs: the CPU target's kernels with HVX's vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from mace_core.api import Counter
from mace_core.candidates import Candidate
from mace_core.compact_weights import WideningKernels, refuse_to_read
from mace_core.ir import Array, Graph
from mace_core.levels import Level
from mace_core.lowering import Lower
from mace_core.numerics import Numerics
from mace_core.program import Call, Program, Weight
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_cpu import Cpu
from mace_target_cpu.quantized import conv
from mace_target_cpu.quantized.depthwise import DEPTHWISE
from mace_target_hexagon import binary, floats, pools, softmax
from mace_target_hexagon.depthwise import REGISTER, lower_depthwise_for_hvx
from mace_target_hexagon.elementwise import SIGNS, estimate_elements, estimate_sum, lower_sum
from mace_target_hexagon.isa import HVX, HVX_QF, LEVELS, WITH_QF
from mace_target_hexagon.resize import lower_resize

LEVEL = (str(HVX.name), str(HVX_QF.name))
"""The levels with vectors."""

PLAIN_CANDIDATES = {
    "MaxPool": Candidate("lines", pools.lower_max, pools.estimate, LEVEL),
    "Relu": Candidate("bits", floats.lower_relu, floats.estimate, LEVEL),
    **{op: Candidate("qf", floats.lower_binary, floats.estimate, LEVEL[1:]) for op in floats.OPERATORS},
}
"""Ways to compute elements that need no scale by HVX; beside them stand the CPU's."""

CANDIDATES = {
    **{op: Candidate("words", lower_sum, estimate_sum, LEVEL) for op in SIGNS},
    **{op: Candidate("rows", pools.lower_mean, pools.estimate, LEVEL) for op in ("ReduceMean", "ReduceSum")},
    **{op: Candidate("runs", lower, binary.estimate, LEVEL) for op, lower in binary.LOWERINGS.items()},
    "AveragePool": Candidate("halves", pools.lower_average, pools.estimate, LEVEL),
    "Resize": Candidate("bytes", lower_resize, floats.estimate, LEVEL),
    "Softmax": Candidate("bytes", softmax.lower_softmax, softmax.estimate_vectors, LEVEL),
}
"""Ways to compute stored integers by HVX, rounded as in single precision."""

FIXED_POINT_CANDIDATES = {
    "AveragePool": Candidate("halves", pools.lower_divided_average, pools.estimate, LEVEL),
    **{op: Candidate("runs", lower, binary.estimate, LEVEL) for op, lower in binary.FIXED_POINT.items()},
    "ReduceMean": Candidate("rows", pools.lower_fixed_mean, pools.estimate, LEVEL),
    "Softmax": Candidate("bytes", softmax.lower_fixed_softmax, softmax.estimate_vectors, LEVEL),
}
"""The same with the bits of LiteRT's kernels."""


def _add_candidates(
    table: Mapping[str, Lower | Sequence[Candidate]], candidates: Mapping[str, Candidate]
) -> dict[str, Sequence[Candidate]]:
    """Return for each op its candidate, and behind it what the table has for it."""
    added: dict[str, Sequence[Candidate]] = {}
    for op, candidate in candidates.items():
        plain = table[op]
        assert callable(plain)
        # Still there for the level without vectors, and for what the candidate refuses.
        added[op] = (candidate, Candidate("plain", plain, estimate_elements))
    return added


class Hvx(Cpu):
    """A Hexagon DSP for which a whole library is compiled.

    Its device is "cpu", as `Arm`'s is: for these ABIs it is the processor that computes whatever nothing else
    takes.
    """

    name = "hvx"
    device = "cpu"
    abis: ClassVar[tuple[str, ...]] = ("hexagon-*",)
    # Panels of its matrices are registers of 128 bytes, for which no product of bfloat16 is written.
    arithmetics: ClassVar[tuple[str, ...]] = ("f32",)

    def can_round(self, numerics: Numerics) -> bool:
        """Return whether kernels round so; not `reproducible`, which no test compares with other ABIs."""
        return numerics is not Numerics.REPRODUCIBLE and super().can_round(numerics)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """HVX with vectors of 128 bytes, and plain C for DSPs without it."""
        return LEVELS

    def known_levels(self, abi: str) -> tuple[Level, ...]:
        """The same, and where the vector units compute floats, one that lets them."""
        return (HVX_QF, *LEVELS) if abi in WITH_QF else LEVELS

    def counter(self) -> Counter | None:
        """Return what counts packets in QEMU: its time says nothing of a DSP's."""
        from mace_target_hexagon.packets import PacketCounter  # builds need none

        return PacketCounter()

    @property
    def lowerings(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The CPU's lowerings; some ops have kernels of their own with vectors."""
        return {**super().lowerings, **_add_candidates(super().lowerings, PLAIN_CANDIDATES)}

    @property
    def quantized(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The CPU's lowerings; some ops of bytes have kernels of their own with vectors."""
        products = conv.LOWERINGS["Conv"]
        assert not callable(products)
        # The CPU's candidate orders channels by the halves of AVX2's registers; HVX reads them in order.
        depthwise = replace(DEPTHWISE, lower=lower_depthwise_for_hvx, levels=LEVEL)
        others = (candidate for candidate in products if candidate is not DEPTHWISE)
        table = super().quantized
        return {**table, "Conv": (depthwise, *others), **_add_candidates(table, CANDIDATES)}

    @property
    def fixed_point(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The CPU's lowerings by `numerics: tflite-reference`, with kernels of bytes."""
        return {**super().fixed_point, **_add_candidates(super().fixed_point, FIXED_POINT_CANDIDATES)}

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Leave sums of bytes to their own kernel, whose vectors an epilogue in floats has not."""
        is_sum = first.kernel.template.name == "conv_quantized.c.in"
        return None if is_sum else super().fuse(first, second, tensor)

    def widening_kernels(self) -> WideningKernels:
        """The CPU's, but those of integers: HVX has no kernel that widens bytes to floats in registers."""
        kernels = super().widening_kernels()
        return replace(kernels, integers_4=None, integers_8=None, read_integers=refuse_to_read)

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
