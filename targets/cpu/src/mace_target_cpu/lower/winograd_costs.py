"""Estimates of the time of 3 x 3 convolutions, by Winograd's tiles and directly, in multiply-adds."""

from __future__ import annotations

from math import prod

from mace_core.ir import Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering
from mace_core.winograd import WINDOW

FETCH = 8
"""Multiply-adds that take as long as fetching a value of a factor, measured on processors with AVX2.

With AVX-512 a value of filters of 50 to 100 MB takes 5 on a Zen 4 and 15 on a Xeon, where the next place's
filters are fetched while one is multiplied. By 8 the choice is the fastest of those measured on both, but for
512 channels of 7 x 7 pixels on the Xeon: 1.04 of the direct sum's time, and 0.73 on the Zen 4.
"""

TRANSFORM = {2: 14, 4: 21, 6: 23}
"""Tile -> multiply-adds that take as long as transforming one of its values, measured there too."""

MARGIN = 1.2
"""The time of tiles over their estimate, at maximum, of 24 measurements: 0.83 to 1.2 where tiles gain."""


def count_tiles(y: Tensor, tile: int) -> int:
    """Return the tiles that results consist of."""
    batch, height, width = y.shape[:-1]
    return batch * -(-height // tile) * -(-width // tile)


def estimate_tiles(x: Tensor, y: Tensor, tile: int) -> float:
    """Return the multiply-adds in whose time a convolution is computed by tiles, with the margin."""
    depth, results, tiles = x.shape[-1], y.shape[-1], count_tiles(y, tile)
    places = (tile + WINDOW - 1) ** 2
    products = depth * (tiles * results + FETCH * (tiles + results))
    return MARGIN * places * (products + TRANSFORM[tile] * tiles * (depth + results))


def estimate_direct(node: Node, lowering: Lowering, level: Level | None = None) -> float:
    """Return the multiply-adds in whose time the direct sum is computed, alike at every level."""
    w, y = lowering.shape(node.inputs[1]), lowering.shape(node.outputs[0])
    pixels, results = prod(y[:-1]), y[-1]
    return float(prod(w[1:]) * (pixels * results + FETCH * (pixels + results)))
