"""Estimates of the time of 3 x 3 convolutions, by Winograd's tiles and directly, in multiply-adds."""

from __future__ import annotations

from math import prod

from mace_core.ir import Graph, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering
from mace_core.winograd import WINDOW
from mace_target_cpu.isa import MAX_LANES, CpuLevel

FETCH = 8
"""Multiply-adds that take as long as fetching a value of a factor, measured on processors with AVX2."""

DISTANT_FETCH = 50
"""Those of a filter's value where vectors have 16 floats and filters come from memory: 5 GB/s of one core.

By it the sums of all layers of ResNet-18 and 50 are 1.05 and 1.03 of the direct ones where all that this
module would choose at AVX2 are tiles; 1.03 and 1.05 were measured on a Xeon.
"""

NEAR_BYTES = 1 << 19
"""Bytes of a graph's weights up to which filters of tiles, four times as large, stay in a cache of 2 MB."""

TRANSFORM = {2: 14, 4: 21, 6: 23}
"""Tile -> multiply-adds that take as long as transforming one of its values, measured there too."""

MARGIN = 1.2
"""The time of tiles over their estimate, at maximum, of 24 measurements: 0.83 to 1.2 where tiles gain."""


def fetch_of(graph: Graph, level: Level) -> int:
    """Return the multiply-adds in whose time a value of a filter is fetched."""
    has_wide_vectors = isinstance(level, CpuLevel) and level.is_x86 and level.lanes == MAX_LANES
    return max_fetch(graph) if has_wide_vectors else FETCH


def max_fetch(graph: Graph) -> int:
    """Return those of the level at which they are most."""
    return FETCH if _stays_near(graph) else DISTANT_FETCH


def _stays_near(graph: Graph) -> bool:
    """Tell whether a graph's weights stay in a cache from run to run."""
    total = 0
    for array in graph.weights.values():
        total += array.nbytes
        # Asked for each convolution: a graph of many has so large weights that the first ones answer.
        if total > NEAR_BYTES:
            return False
    return True


def count_tiles(y: Tensor, tile: int) -> int:
    """Return the tiles that results consist of."""
    batch, height, width = y.shape[:-1]
    return batch * -(-height // tile) * -(-width // tile)


def estimate_tiles(x: Tensor, y: Tensor, tile: int, fetch: int = FETCH) -> float:
    """Return the multiply-adds in whose time a convolution is computed by tiles, with the margin.

    fetch: those in whose time a value of a filter is fetched.
    """
    depth, results, tiles = x.shape[-1], y.shape[-1], count_tiles(y, tile)
    places = (tile + WINDOW - 1) ** 2
    products = depth * (tiles * results + FETCH * tiles + fetch * results)
    return MARGIN * places * (products + TRANSFORM[tile] * tiles * (depth + results))


def estimate_direct(node: Node, lowering: Lowering, fetch: int = FETCH) -> float:
    """Return the multiply-adds in whose time the direct sum is computed.

    fetch: those in whose time a value of a filter is fetched, which happens ahead, during products.
    """
    w, y = lowering.shape(node.inputs[1]), lowering.shape(node.outputs[0])
    pixels, results = prod(y[:-1]), y[-1]
    products = pixels * results + FETCH * (pixels + results)
    return float(prod(w[1:]) * max(products, fetch * results))
