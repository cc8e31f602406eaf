"""The matrices of Winograd's convolution of windows of 3 x 3, for targets that compute it.

A tile of m x m results takes (m + 2) x (m + 2) products for each pair of channels instead of 9 m x m: 2.25
times fewer for m = 2, 4 times for m = 4, 5.06 times for m = 6. Y = A (G w G' * B x B') A', of which `*`
multiplies element by element. S. Winograd, "Arithmetic Complexity of Computations" (1980);
A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from math import prod

import numpy as np

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array

WINDOW = 3

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2")))
"""Where the polynomials are evaluated, besides infinity: small powers of 2, whose multiples are exact."""

TILES = (2, 4, 6)
"""Values of m."""

SAMPLE_TILES, SAMPLE_RESULTS = 8, 16
"""Tiles and filters at maximum by which errors are measured: 512 results for m = 2, 4,608 for m = 6."""

MAX_RATIO, MAX_FILTER_RATIO = 1.0, 2.0
"""Errors of tiles over those of the direct sum up to which tiles need no permission: of all results together
and of each filter's.  A filter's few results scatter: dense ones, at 0.6 together, reach 1.6."""

ERROR = "winograd_error"


@dataclass(frozen=True)
class WinogradKeys:
    """What the keys of a model allow.

    tile: the largest tile, 0 for none.  error: of a convolution by tiles, see `measure_error`; 0 for any.
    is_stated: whether the model says anything about tiles. If not, a target may take those that need no
    permission (`MeasuredErrors.is_near`).
    """

    tile: int = 0
    error: float = 0.0
    is_stated: bool = False

    @classmethod
    def of_model(cls, model: Model) -> WinogradKeys:
        """Read the keys; MaceError for a bound where no tile is allowed."""
        tile, error = int(str(model.keys.get("winograd", 0))), float(str(model.keys.get(ERROR, 0)))
        if error and not tile:
            place = f"model {model.name!r}: {ERROR}"
            raise MaceError(
                place, "bounds the errors of tiles, and none is allowed", "write winograd: 6 beside it"
            )
        return cls(tile, error, "winograd" in model.keys)


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
    # In double precision: the thirds and sixths are rounded once, in the result.
    by_place = _transform_filters(weights, tile)
    return np.ascontiguousarray(by_place.reshape(-1, *by_place.shape[2:]), np.float32)


def measure_error(weights: Array, tile: int) -> float:
    """Return the largest error of a convolution by tiles as a part of its largest result.

    Measured in single precision against double, on random numbers of both signs, with some of the filters.
    NaN, or infinity, where a filter is so, or large enough that single precision does not hold a sum.
    """
    results, channels = weights.shape[0], weights.shape[-1]
    with np.errstate(invalid="ignore"):
        filters = _transform_filters(weights[:: -(-results // SAMPLE_RESULTS)], tile)
    data = _draw_data(tile, channels)
    # What leaves single precision is no warning for whoever builds: a bound refuses it.
    with np.errstate(over="ignore", invalid="ignore"):
        exact = _convolve(data, filters, tile)
        rounded = _convolve(np.asarray(data, np.float32), np.asarray(filters, np.float32), tile)
        largest = np.abs(exact).max()
        return float(np.abs(rounded - exact).max() / largest) if largest else 0.0


@dataclass(frozen=True)
class ErrorRatios:
    """The errors of a convolution by tiles over those of its direct sum, as root mean squares.

    total: of all results.  largest: of the results of the filter for which it is the largest.
    """

    total: float
    largest: float

    @property
    def is_near(self) -> bool:
        """Tell whether tiles are as near to the exact results as the direct sum; not for NaN."""
        return self.total <= MAX_RATIO and self.largest <= MAX_FILTER_RATIO


def compare_errors(weights: Array, tile: int) -> ErrorRatios:
    """Measure both ways to compute a convolution, with all its filters, on the data of `measure_error`."""
    with np.errstate(over="ignore", invalid="ignore"):
        filters = _transform_filters(weights, tile)
        data = _draw_data(tile, weights.shape[-1])
        exact = _sum_directly(data, np.asarray(weights, np.float64), tile)
        rounded = np.asarray(data, np.float32)
        by_tiles = _convolve(rounded, np.asarray(filters, np.float32), tile) - exact
        directly = _sum_directly(rounded, np.asarray(weights, np.float32), tile) - exact
        ratios = _divide_roots(by_tiles, directly)
    return ErrorRatios(total=float(ratios[-1]), largest=float(ratios[:-1].max()))


def _divide_roots(errors: Array, others: Array) -> Array:
    """Return the ratios of root mean squares: of each filter, the last axis, and behind them of all."""
    squares, other_squares = (np.square(array).sum(axis=(0, 1, 2)) for array in (errors, others))
    roots, other_roots = (np.sqrt(np.append(array, array.sum())) for array in (squares, other_squares))
    # Filters of zeros have no errors in either way; errors beside none are infinitely larger.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(roots == 0, 0.0, roots / other_roots)


@dataclass(frozen=True)
class MeasuredErrors:
    """Remembers measured errors: a node is lowered several times, to try it, to estimate and to compute it.

    by_key: by the identity of the filters and the tile. Filters are there too, so that they live as long as
    their identity is used.  ratios: the same of ratios.
    """

    by_key: dict[tuple[int, int], tuple[Array, float]] = field(default_factory=dict)
    ratios: dict[tuple[int, int], tuple[Array, ErrorRatios]] = field(default_factory=dict)

    def measure(self, weights: Array, tile: int) -> float:
        """Return what `measure_error` returns; it is called once for the same array and tile."""
        key = (id(weights), tile)
        if key not in self.by_key:
            self.by_key[key] = (weights, measure_error(weights, tile))
        return self.by_key[key][1]

    def is_near(self, weights: Array, tile: int) -> bool:
        """Tell whether tiles are as near to the exact results as the direct sum, as measured once."""
        key = (id(weights), tile)
        if key not in self.ratios:
            self.ratios[key] = (weights, compare_errors(weights, tile))
        return self.ratios[key][1].is_near


def is_within(
    weights: Array, tile: int, error: float, measure: Callable[[Array, int], float] = measure_error
) -> bool:
    """Tell whether a tile's error is within a bound; 0 is none.

    No tile is for filters with an infinity: their transform subtracts it from itself.
    measure: returns the error, see `MeasuredErrors`.
    """
    if not np.isfinite(weights).all():
        return False
    return not error or measure(weights, tile) <= error


def _draw_data(tile: int, channels: int) -> Array:
    """Return random data of tiles, [m + 2, m + 2, tiles, channels], from -1 to 1."""
    side = tile + WINDOW - 1
    # Integers of a generator that never changes: every machine that builds measures the same bits.
    integers = np.random.RandomState(0).randint(-(1 << 15), 1 << 15, (side, side, SAMPLE_TILES, channels))
    return np.asarray(integers, np.float64) / (1 << 15)


def _sum_directly(data: Array, weights: Array, tile: int) -> Array:
    """Return what `_convolve` returns, of filters as they are, by the sums and in the order of kernels."""
    sums = np.zeros((tile, tile, data.shape[2], weights.shape[0]), data.dtype)
    for row, column, channel in product(range(WINDOW), range(WINDOW), range(data.shape[-1])):
        seen = data[row : row + tile, column : column + tile, :, channel, None]
        sums += seen * weights[:, row, column, channel]
    return sums


def _convolve(data: Array, filters: Array, tile: int) -> Array:
    """Return the results [m, m, tiles, results] of data [m + 2, m + 2, tiles, channels], in its type."""
    transformed = _apply_twice(transforms(tile).data, data)
    sums = np.zeros((*transformed.shape[:3], filters.shape[-1]), data.dtype)
    # One product after the other, as kernels add them; a library of matrices would add as its machine likes.
    for channel in range(data.shape[-1]):
        sums += transformed[..., channel, None] * filters[:, :, None, channel]
    return _apply_twice(transforms(tile).results, sums)


def _transform_filters(weights: Array, tile: int) -> Array:
    """Return filters as [m + 2, m + 2, channels, results] in double precision."""
    by_place = np.asarray(weights.transpose(1, 2, 3, 0), np.float64)
    return _apply_twice(transforms(tile).filters, by_place)


def _apply_twice(matrix: Matrix, values: Array) -> Array:
    """Return M values M', of the first two axes."""
    return _apply(matrix, _apply(matrix, values).swapaxes(0, 1)).swapaxes(0, 1)


def _apply(matrix: Matrix, values: Array) -> Array:
    """Return the product of a matrix with the first axis, added in one order on every machine."""
    lines = []
    for row in matrix:
        terms = [float(factor) * values[place] for place, factor in enumerate(row) if factor]
        lines.append(reduce(np.add, terms))
    return np.stack(lines)
