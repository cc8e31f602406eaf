"""How many operations a layer computes; counted as the maker's documentation counts them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mace_frontend_ai8x.network import Activation, Eltwise, Layer, Operation

BITWISE = (Eltwise.OR, Eltwise.XOR)


@dataclass(frozen=True)
class Operations:
    """multiplications: with their additions.  comparisons: of max pooling and activations.

    additions: of average pooling and element-wise operations.
    """

    multiplications: int = 0
    comparisons: int = 0
    additions: int = 0
    bitwise: int = 0

    def __add__(self, other: Operations) -> Operations:
        """Both together."""
        return Operations(
            self.multiplications + other.multiplications,
            self.comparisons + other.comparisons,
            self.additions + other.additions,
            self.bitwise + other.bitwise,
        )

    @property
    def total(self) -> int:
        """All of them."""
        return self.multiplications + self.comparisons + self.additions + self.bitwise


def operations(layer: Layer) -> Operations:
    """What one layer computes: each value of a window is one comparison or addition, each positive-part one comparison.

    Multiplications of a transposed convolution include those with the zeros between its inputs.
    """
    outputs = layer.out_channels * prod(layer.out_dim)
    compared = outputs if layer.activation is not Activation.NONE else 0
    added = bitwise = 0
    if layer.pool is not None:
        elements = (
            layer.channels
            * prod(layer.pooled)
            * prod(layer.pool.size)
            * (layer.operands if layer.pool_first else 1)
        )
        compared, added = (compared, elements) if layer.pool.average else (compared + elements, 0)
    if layer.eltwise is not None:
        elements = (
            layer.channels * prod(layer.pooled if layer.pool_first else layer.dim) * (layer.operands - 1)
        )
        added, bitwise = (added, elements) if layer.eltwise in BITWISE else (added + elements, 0)
    return Operations(_multiplications(layer), compared, added, bitwise)


def _multiplications(layer: Layer) -> int:
    if layer.operation is Operation.PASSTHROUGH:
        return 0
    positions = prod(layer.pooled) if layer.flatten else 1
    return (
        layer.channels
        // layer.groups
        * positions
        * prod(layer.kernel)
        * layer.out_channels
        * prod(layer.out_dim)
    )
