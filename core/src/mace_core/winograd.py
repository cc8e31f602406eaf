"""The matrices of Winograd's convolution of windows of 3 x 3, for targets that compute it.

A tile of m x m results takes (m + 2) x (m + 2) products for each pair of channels instead of 9 m x m: 2.25
times fewer for m = 2, 4 times for m = 4, 5.06 times for m = 6. Y = A (G w G' * B x B') A', of which `*`
multiplies element by element. S. Winograd, "Arithmetic Complexity of Computations" (1980);
A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

import numpy as np

from mace_core.ir import Array

WINDOW = 3

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))
"""Where the polynomials are evaluated, besides infinity: small powers of 2, whose multiples are exact."""

TILES = (2, 4, 6)
"""Values of m."""


@dataclass(frozen=True)
class Transforms:
    """The matrices of a tile of m results: data is [m + 2, m + 2], filters [m + 2, 3], results [m, m + 2]."""

    data: Matrix
    filters: Matrix
    results: Matrix


@cache
def transforms(tile: int) -> Transforms:
    """Return the matrices of a tile by interpolation at m + 1 points and at infinity (Toom and Cook)."""
    points = POINTS[: tile + 1]
    last = (Fraction(0),)
    data, filters = [], []
    for i, point in enumerate(points):
        others = (*points[:i], *points[i + 1 :])
        # The factors of Lagrange's polynomials go to the filters, which are transformed at the build.
        factor = prod((point - other for other in others), start=Fraction(1))
        filters.append(tuple(point**power / factor for power in range(WINDOW)))
        data.append((*_expand(others), *last))
    infinity = (*last * (WINDOW - 1), Fraction(1))
    data.append(_expand(points))
    filters.append(infinity)
    results = [
        (*(point**power for point in points), Fraction(int(power == tile - 1))) for power in range(tile)
    ]
    return Transforms(tuple(data), tuple(filters), tuple(results))


def _expand(roots: tuple[Fraction, ...]) -> Row:
    """Return the coefficients of the product of (x - root), that of the lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [root * coefficient for coefficient in coefficients] + [Fraction(0)]
        coefficients = [high - low for high, low in zip(shifted, scaled, strict=True)]
    return tuple(coefficients)


def transform_filters(weights: Array, tile: int) -> Array:
    """Return filters [results, 3, 3, channels] as [places, channels, results] in single precision."""
    matrix = np.array(transforms(tile).filters, np.float64)
    results, _, _, channels = weights.shape
    # In double precision: the thirds and sixths are rounded once, in the result.
    by_place = np.einsum("ia,kabc,jb->ijck", matrix, weights.astype(np.float64), matrix, optimize=True)
    return np.ascontiguousarray(by_place.reshape(len(matrix) ** 2, channels, results), np.float32)
