"""Weights of -1 and +1 in one bit, which the second generation has.

A network has them, or one-bit weights of -1 and 0, not both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_target_max78000.network import Layer, Weights


def with_binary(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, those with weights of -1 and +1 only in one bit each."""
    if any(layer.weights is not None and layer.weights.bits == 1 for layer in layers):
        return tuple(layers)
    return tuple(
        replace(layer, weights=_binary(layer.weights)) if layer.weights is not None else layer
        for layer in layers
    )


def _binary(weights: Weights) -> Weights:
    return Weights(weights.values, 1, True) if bool(np.all(np.abs(weights.values) == 1)) else weights
