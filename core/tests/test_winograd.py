"""The matrices of Winograd's convolution compute the direct sum exactly, in fractions."""

from fractions import Fraction

import numpy as np
import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.winograd import (
    TILES,
    WINDOW,
    ErrorRatios,
    Matrix,
    MeasuredErrors,
    Row,
    WinogradKeys,
    compare_errors,
    is_within,
    measure_error,
    transform_filters,
    transforms,
)


def multiply(matrix: Matrix, vector: Row) -> Row:
    return tuple(sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix)


@pytest.mark.parametrize("tile", TILES)
def test_tiles_are_the_direct_sum(tile: int) -> None:
    matrices = transforms(tile)
    data = tuple(Fraction(3 * i * i - 7 * i + 2) for i in range(tile + WINDOW - 1))
    # Each unit filter shifts the data, and a sum of them is the sum of the shifts: nothing else is left to test.
    for shift in range(WINDOW):
        filters = tuple(Fraction(int(i == shift)) for i in range(WINDOW))
        pairs = zip(multiply(matrices.filters, filters), multiply(matrices.data, data), strict=True)
        result = multiply(matrices.results, tuple(a * b for a, b in pairs))
        assert result == data[shift : shift + tile]


def test_lines_of_opposite_points_differ_in_the_signs_of_odd_places() -> None:
    """Kernels compute them as a sum and a difference."""
    for tile in TILES:
        middle = transforms(tile).data[1:-1]
        for line, other in zip(middle[::2], middle[1::2], strict=True):
            assert other == tuple(-value if place % 2 else value for place, value in enumerate(line))


def test_filters_are_transformed_by_place() -> None:
    weights = np.zeros((2, 3, 3, 5), np.float32)
    weights[1, 0, 2, 4] = 6  # the filter's first row is the matrix' first column, its last column the last
    transformed = transform_filters(weights, 4)
    assert transformed.shape == (36, 5, 2)
    matrix = np.array(transforms(4).filters, np.float64)
    expected = 6 * np.outer(matrix[:, 0], matrix[:, 2])
    np.testing.assert_allclose(transformed[:, 4, 1].reshape(6, 6), expected, rtol=1e-7)
    transformed[:, 4, 1] = 0
    assert not transformed.any()


def draw_filters(channels: int) -> Array:
    return np.random.RandomState(1).standard_normal((32, 3, 3, channels)).astype(np.float32)


def test_tiles_of_2_have_the_least_errors() -> None:
    least, *others = (measure_error(draw_filters(64), tile) for tile in TILES)
    assert 1e-8 < least < 1e-6 < min(others)
    assert max(others) < 2e-5


def test_zeros_have_no_error() -> None:
    assert measure_error(np.zeros((16, 3, 3, 16), np.float32), 4) == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_filter_that_single_precision_cannot_multiply_is_beyond_every_bound(value: float) -> None:
    filters = np.ones((16, 3, 3, 16), np.float32)
    filters[3, 1, 1, 2] = value
    assert not is_within(filters, 6, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_tile_is_for_filters_with_an_infinity(value: float) -> None:
    filters = np.ones((16, 3, 3, 16), np.float32)
    filters[3, 1, 1, 2] = value
    assert not any(is_within(filters, tile, 0.0) for tile in TILES)


def test_a_bound_allows_the_tiles_below_it() -> None:
    filters = draw_filters(64)
    assert [is_within(filters, tile, 1e-6) for tile in TILES] == [True, False, False]
    assert all(is_within(filters, tile, 0.0) for tile in TILES)


@pytest.mark.parametrize("channels", [16, 64, 128])
def test_tiles_of_2_are_nearer_than_the_direct_sum(channels: int) -> None:
    smallest, *others = (compare_errors(draw_filters(channels), tile) for tile in TILES)
    assert smallest.is_near
    assert 0.5 < smallest.total < 0.75
    assert min(other.total for other in others) > 2


def keep_corners(filters: Array) -> Array:
    """The weights of a filter's last corner alone: sums of a tile cancel what others would have weighted."""
    corners = np.zeros_like(filters)
    corners[:, 2, 2] = filters[:, 2, 2]
    return corners


def test_filters_whose_tiles_cancel_are_not_near() -> None:
    filters = draw_filters(64)
    assert compare_errors(keep_corners(filters), 2).total > 1.5
    rng = np.random.RandomState(2)
    assert compare_errors(filters * (rng.random_sample(filters.shape) < 0.05), 2).total > 1


def test_small_filters_do_not_hide_behind_large_ones() -> None:
    filters = draw_filters(64)
    filters[::4] = keep_corners(filters)[::4] / 1000
    ratios = compare_errors(filters, 2)
    assert ratios.total < 1
    assert not ratios.is_near


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_no_default_tile_is_for_filters_that_single_precision_cannot_multiply(value: float) -> None:
    filters = np.ones((16, 3, 3, 16), np.float32)
    filters[3, 1, 1, 2] = value
    assert not compare_errors(filters, 2).is_near


@pytest.mark.filterwarnings("error")
def test_zeros_are_near() -> None:
    assert compare_errors(np.zeros((16, 3, 3, 16), np.float32), 2).is_near


def test_errors_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def compare(weights: Array, tile: int) -> ErrorRatios:
        compared.append(tile)
        return compare_errors(weights, tile)

    monkeypatch.setattr("mace_core.winograd.compare_errors", compare)
    filters, errors = draw_filters(16), MeasuredErrors()
    assert [errors.is_near(filters, 2) for _ in range(3)] == [True] * 3
    assert compared == [2]


def test_whether_a_model_says_anything_of_tiles() -> None:
    assert not WinogradKeys.of_model(Model("m", ())).is_stated
    assert WinogradKeys.of_model(Model("m", (), keys={"winograd": 0})) == WinogradKeys(0, 0.0, True)


def test_a_bound_without_tiles_is_refused() -> None:
    assert WinogradKeys.of_model(
        Model("m", (), keys={"winograd": 4, "winograd_error": 1e-5})
    ) == WinogradKeys(4, 1e-5, True)
    with pytest.raises(MaceError, match=r"winograd_error: bounds the errors of tiles.*write winograd: 6"):
        WinogradKeys.of_model(Model("m", (), keys={"winograd_error": 1e-5}))
