"""Conv of 3 x 3 windows by the tiles that a model takes which says nothing of Winograd's convolution.

They are for whoever never heard of it, so nothing may get worse by them: results are as near to the exact
ones as those of the direct sum, and libraries grow little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from mace_core.candidates import Candidate
from mace_core.ir import Graph, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.winograd import WINDOW, MeasuredErrors
from mace_target_cpu.isa import X86
from mace_target_cpu.lower.conv import conv
from mace_target_cpu.lower.winograd import call_winograd, count_places, read_filters
from mace_target_cpu.lower.winograd_costs import estimate_direct, estimate_tiles

TILE = 2
"""Results of a side: the errors of larger tiles are above those of the direct sum."""

GROWTH = 6
"""Transformed filters may add a sixth to a model's weights, or SMALL_BYTES.

They take 16/9 of the bytes of filters: all those of ResNet-18 29 MB more of 47. What tiles spare for each
byte goes with the pixels of a layer, so layers of more pixels come first: of ResNet-18 and ResNet-50 those
from 14 x 14 pixels on, for 7 MB of 47 and 13 of 102.
"""

SMALL_BYTES = 1 << 21
"""Bytes that a library is not noticed to grow by, so that small models need no sixth."""

LEVELS = tuple(str(level.name) for level in X86)
"""Costs were measured on processors of x86-64.  And a candidate of certain levels is none of `numerics:
reproducible`, whose bits must not depend on the processor."""


@dataclass(frozen=True)
class Growth:
    """What transformed filters add to the weights of a graph.

    weights: bytes of all weights.  by_pixels: pixels of a layer -> bytes that the filters of all layers of as
    many pixels add.
    """

    weights: int
    by_pixels: dict[int, int]

    @classmethod
    def of_graph(cls, graph: Graph) -> Growth:
        """Add up the filters of all convolutions that tiles may compute."""
        by_pixels: dict[int, int] = {}
        for node in graph.nodes:
            if node.op.name != "Conv" or {*node.attributes(ConvAttributes).strides} != {1}:
                continue
            filters = graph.weights.get(node.inputs[1])
            if filters is None or filters.shape[1:-1] != (WINDOW, WINDOW):
                continue
            added = filters.nbytes * (count_places(TILE) - WINDOW**2) // WINDOW**2
            pixels = _count_pixels(graph.tensors[node.outputs[0]])
            by_pixels[pixels] = by_pixels.get(pixels, 0) + added
        return cls(sum(array.nbytes for array in graph.weights.values()), by_pixels)

    def check(self, pixels: int) -> None:
        """Raise Refused if the filters of all layers of so many pixels or more add too much."""
        added = sum(count for others, count in self.by_pixels.items() if others >= pixels)
        if added <= max(SMALL_BYTES, self.weights / GROWTH):
            return
        raise Refused(
            f"transformed filters of all layers of {pixels} pixels and more would add {added} bytes to "
            f"{self.weights} of weights, more than 1/{GROWTH}",
            code="other",
            remedy=f"write winograd: {TILE}",
        )


@dataclass(frozen=True)
class DefaultTiles:
    """Computes convolutions by tiles that need no permission.

    errors: those of the model's filters.  growths: of the graphs that were lowered, by their identity. Graphs
    are there too, so that they live as long as their identity is used.
    """

    errors: MeasuredErrors
    growths: dict[int, tuple[Graph, Growth]] = field(default_factory=dict)

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Append the call; raises Refused where tiles are not near enough, too large or slower."""
        weights = read_filters(node, lowering)
        if _estimate_tiles(node, lowering) >= estimate_direct(node, lowering):
            raise Refused("Winograd's tiles would take longer than the direct sum", code="other")
        self._measure_growth(lowering.graph).check(_count_pixels(lowering.tensors[node.outputs[0]]))
        if not self.errors.is_near(weights, TILE):
            raise Refused(
                "the errors of Winograd's tiles are above those of the direct sum",
                code="other",
                remedy=f"write winograd: {TILE}",
            )
        call_winograd(node, lowering, TILE)

    def _measure_growth(self, graph: Graph) -> Growth:
        """Return the growth of a graph, which is added up once for all its convolutions."""
        if id(graph) not in self.growths:
            self.growths[id(graph)] = (graph, Growth.of_graph(graph))
        return self.growths[id(graph)][1]


def _count_pixels(y: Tensor) -> int:
    return prod(y.shape[:-1])


def offer_default_tiles(errors: MeasuredErrors) -> tuple[Candidate, ...]:
    """Return the ways to compute a convolution of a model that says nothing of tiles."""
    return (
        Candidate("winograd", DefaultTiles(errors).lower, _estimate_tiles, LEVELS),
        Candidate("direct", conv, estimate_direct),
    )


def _estimate_tiles(node: Node, lowering: Lowering, level: Level | None = None) -> float:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    return estimate_tiles(x, y, TILE)
