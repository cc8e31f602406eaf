"""BatchNorm: normalization of every channel by moments known from training."""

from __future__ import annotations

import numpy as np

from mace_core.ir import Array
from mace_core.ops.norm import EpsilonAttributes, channels_last, move_outer
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs


def _infer(inputs: Inputs, attrs: EpsilonAttributes) -> list[Spec]:
    x = channels_last(inputs, attrs.epsilon, min_rank=2)
    return [(x.dtype, x.shape)]


def fold_moments(
    scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float
) -> tuple[Array, Array]:
    """Compute the factors and summands, in double precision, with which BatchNorm is x * factor + summand."""
    # In double precision, because a variance near 0 makes a factor so large that the rounding of a float32
    # product mean * factor would be visible in every element of the channel.
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)
    return factor, bias - mean * factor


def _batch_norm(x: Array, *vectors: Array, attrs: EpsilonAttributes) -> Array:
    factor, summand = fold_moments(*vectors, epsilon=attrs.epsilon)
    return np.asarray(x * factor + summand).astype(x.dtype)


OPS = (
    Op(
        "BatchNorm",
        ("x", "scale", "bias", "mean", "variance"),
        ("y",),
        _infer,
        _batch_norm,
        EpsilonAttributes,
        move=move_outer,
    ),
)
