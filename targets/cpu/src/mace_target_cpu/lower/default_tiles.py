"""Conv of 3 x 3 windows by the tiles that a model takes which says nothing of Winograd's convolution.

They are for whoever never heard of it, so nothing may get worse by them: results are as near to the exact
ones as those of the direct sum, and libraries grow little.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mace_core.candidates import Candidate
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.winograd import MeasuredErrors
from mace_target_cpu.isa import X86
from mace_target_cpu.lower.conv import conv
from mace_target_cpu.lower.winograd import call_winograd, count_places, read_filters
from mace_target_cpu.lower.winograd_costs import estimate_direct, estimate_tiles, max_fetch

TILE = 2
"""Results of a side: the errors of larger tiles are above those of the direct sum."""

MAX_BYTES = 1 << 20
"""Of transformed filters.  They take 16/9 of the bytes of filters: for ResNet-18 29 MB more of 47.  With this
bound it is 1.8, for half of the gain: what tiles spare goes with the pixels of a layer, and layers of many
pixels have few channels."""

LEVELS = tuple(str(level.name) for level in X86)
"""Costs were measured on processors of x86-64.  And a candidate of certain levels is none of `numerics:
reproducible`, whose bits must not depend on the processor."""


@dataclass(frozen=True)
class DefaultTiles:
    """Computes convolutions by tiles that need no permission.  errors: those of the model's filters."""

    errors: MeasuredErrors

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Append the call; raises Refused where tiles are not near enough, too large or slower."""
        weights = read_filters(node, lowering)
        size = weights.itemsize * count_places(TILE) * prod((weights.shape[0], weights.shape[-1]))
        if size > MAX_BYTES:
            raise Refused(
                f"transformed filters would take {size} bytes, more than {MAX_BYTES}",
                code="other",
                remedy=f"write winograd: {TILE}",
            )
        if _estimate_tiles(node, lowering) >= _estimate_direct(node, lowering):
            raise Refused("Winograd's tiles would take longer than the direct sum", code="other")
        if not self.errors.is_near(weights, TILE):
            raise Refused(
                "the errors of Winograd's tiles are above those of the direct sum",
                code="other",
                remedy=f"write winograd: {TILE}",
            )
        call_winograd(node, lowering, TILE)


def offer_default_tiles(errors: MeasuredErrors) -> tuple[Candidate, ...]:
    """Return the ways to compute a convolution of a model that says nothing of tiles."""
    return (
        Candidate("winograd", DefaultTiles(errors).lower, _estimate_tiles, LEVELS),
        Candidate("direct", conv, _estimate_direct),
    )


# The estimates are those of the level whose filters are farthest, at all levels: where levels chose
# differently, a library would hold the filters twice.


def _estimate_tiles(node: Node, lowering: Lowering, level: Level | None = None) -> float:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    return estimate_tiles(x, y, TILE, max_fetch(lowering.graph))


def _estimate_direct(node: Node, lowering: Lowering, level: Level | None = None) -> float:
    return estimate_direct(node, lowering, max_fetch(lowering.graph))
