"""Measures the similarity of actual and expected outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Tensor
from mace_core.quantization import dequantize

MOST_DECIBELS = 200.0
"""Reported for results that are the same: more than float32 can tell apart."""


@dataclass(frozen=True)
class Similarity:
    """Figures of one result, or the worst of several.

    cosine: of the angle between the two as vectors.  sqnr: signal to noise, in decibels.
    error: the largest difference, over the range of what was expected.
    pixels: the share of pixels whose largest channel is the same; 1 where there is one channel.
    """

    cosine: float
    sqnr: float
    error: float
    pixels: float

    @classmethod
    def of(cls, actual: Array, expected: Array) -> Similarity:
        """Compare two arrays of numbers with equally many elements."""
        expected = expected.reshape(actual.shape)
        return cls(
            cosine(actual, expected),
            sqnr(actual, expected),
            relative_error(actual, expected),
            pixel_accuracy(actual, expected),
        )

    @classmethod
    def worst(cls, several: Iterable[Similarity]) -> Similarity:
        """Return the worst of each figure."""
        each = list(several)
        return cls(
            min(s.cosine for s in each),
            min(s.sqnr for s in each),
            max(s.error for s in each),
            min(s.pixels for s in each),
        )


def numbers(array: Array, tensor: Tensor) -> Array:
    """The real numbers of what a tensor holds."""
    return dequantize(array, tensor.quant) if tensor.quant and array.dtype == tensor.dtype.numpy else array


def cosine(actual: Array, expected: Array) -> float:
    """Cosine of the angle between two arrays taken as vectors; 1 where both are zero."""
    a, b = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else float(not (a.any() or b.any()))


def sqnr(actual: Array, expected: Array) -> float:
    """10 log10 of the expected signal's power over that of the difference, at most MOST_DECIBELS."""
    wide = expected.astype(np.float64)
    signal, noise = float(np.square(wide).sum()), float(np.square(actual.astype(np.float64) - wide).sum())
    if not noise:
        return MOST_DECIBELS
    return min(MOST_DECIBELS, 10 * math.log10(signal / noise)) if signal else -MOST_DECIBELS


def relative_error(actual: Array, expected: Array) -> float:
    """Return the largest absolute difference, relative to the range of the expected values (1 if it is 0)."""
    wide = expected.astype(np.float64)
    span = float(wide.max() - wide.min()) if wide.size else 0.0
    return float(np.abs(actual.astype(np.float64) - wide).max(initial=0.0)) / (span or 1.0)


def pixel_accuracy(actual: Array, expected: Array) -> float:
    """The share of places whose largest element along the last axis is the same."""
    if not actual.size or actual.shape[-1] < 2:
        return 1.0
    return float((actual.argmax(axis=-1) == expected.argmax(axis=-1)).mean())


def accuracy(scores: Array, labels: Array) -> float:
    """The share of samples whose highest score is at the label."""
    return float((scores.reshape(len(labels), -1).argmax(axis=1) == labels).mean())
