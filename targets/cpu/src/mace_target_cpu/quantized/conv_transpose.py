"""ConvTranspose over quantized tensors, as the convolution that it is."""

from __future__ import annotations

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_target_cpu.lower.conv_transpose import PARTS
from mace_target_cpu.lower.subpixel import convolution
from mace_target_cpu.quantized.conv import conv


def conv_transpose(node: Node, lowering: Lowering) -> None:
    """Any transposed convolution of constant weights whose axes divide."""
    parts = list(convolution(node, lowering))
    for part in parts:
        (conv if part.op.name == "Conv" else PARTS[part.op.name])(part, lowering)


LOWERINGS: dict[str, Lower] = {"ConvTranspose": conv_transpose}
