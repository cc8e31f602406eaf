"""Convolutions and matrix products: the loops of `quantized`, with multipliers of another rule."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.candidates import Candidate
from mace_core.lowering import Lower
from mace_target_cpu.quantized import conv, conv_transpose, matmul

# `choose_rounding` reads the rule from the lowering.
LOWERINGS: dict[str, Lower | Sequence[Candidate]] = {
    **conv.LOWERINGS,
    **conv_transpose.LOWERINGS,
    **matmul.LOWERINGS,
}
