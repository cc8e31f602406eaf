"""How alike two results are: the figures, and their ends."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.ir import DType, Quant, Tensor
from mace_core.run.similarity import (
    MOST_DECIBELS,
    Similarity,
    accuracy,
    cosine,
    numbers,
    pixel_accuracy,
    relative_error,
    sqnr,
)

ZERO, ONES = np.zeros(4, np.float32), np.ones(4, np.float32)


def test_equal_results_are_as_alike_as_can_be() -> None:
    result = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    same = Similarity.of(result, result.reshape(6, 4))
    assert same.cosine == pytest.approx(1)
    assert (same.sqnr, same.error, same.pixels) == (MOST_DECIBELS, 0, 1)


@pytest.mark.parametrize(
    ("found", "expected", "angle"), [(ZERO, ZERO, 1), (ZERO, ONES, 0), (ONES, ZERO, 0), (-ONES, ONES, -1)]
)
def test_cosine_of_zero_vectors(found: np.ndarray, expected: np.ndarray, angle: float) -> None:
    assert cosine(found, expected) == pytest.approx(angle)


def test_decibels() -> None:
    expected = np.full(4, 10.0)
    assert sqnr(expected + 1, expected) == pytest.approx(20)
    assert sqnr(expected * 0, expected) == pytest.approx(0)
    assert sqnr(ONES, ZERO) == -MOST_DECIBELS
    assert sqnr(ZERO, ZERO) == MOST_DECIBELS


def test_the_error_is_over_the_range() -> None:
    expected = np.array([0.0, 4.0])
    assert relative_error(np.array([1.0, 4.0]), expected) == 0.25
    assert relative_error(np.array([3.0]), np.array([1.0])) == 2, "no range: over 1"
    assert relative_error(np.zeros(0), np.zeros(0)) == 0


def test_unsigned_integers_do_not_wrap() -> None:
    actual, expected = np.array([0, 255], np.uint8), np.array([255, 0], np.uint8)
    assert relative_error(actual, expected) == 1
    assert cosine(actual, expected) == 0


def test_pixels_are_compared_by_their_greatest_channel() -> None:
    result = np.array([[[0.1, 0.9], [0.8, 0.2]]])
    assert pixel_accuracy(result, np.array([[[0, 1], [0, 1]]])) == 0.5
    assert pixel_accuracy(result[..., :1], result[..., 1:]) == 1, "one channel has no greatest"
    assert pixel_accuracy(np.zeros((0, 2)), np.zeros((0, 2))) == 1


def test_two_channels_have_a_greatest() -> None:
    assert pixel_accuracy(np.array([[0, 1], [1, 0]]), np.array([[0, 1], [0, 1]])) == 0.5


def test_the_worst_of_each_figure() -> None:
    several = [Similarity(1, 10, 0.5, 1), Similarity(0.5, 20, 0.1, 0.9)]
    assert Similarity.worst(several) == Similarity(0.5, 10, 0.5, 0.9)


def test_stored_integers_are_compared_as_numbers() -> None:
    tensor = Tensor("x", DType.I8, (2,), Quant.of(0.5, 1))
    assert numbers(np.int8([1, 3]), tensor).tolist() == [0, 1]
    assert numbers(np.float32([1, 3]), tensor).tolist() == [1, 3], "numbers already"


def test_accuracy_counts_samples() -> None:
    scores = np.array([[[0.1, 0.9]], [[0.8, 0.2]], [[0.3, 0.7]]])
    assert accuracy(scores, np.array([1, 1, 1])) == pytest.approx(2 / 3)
