"""Normalization by moments of the tensor itself: LayerNorm, RMSNorm, GroupNorm, MeanVarianceNorm.

BatchNorm, InstanceNorm and LRN share some of its functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, Shape, Tensor
from mace_core.ops.op import Op, Perm, Spec
from mace_core.ops.shapes import AxisAttributes, Inputs, axis_of, need, present, same_dtype

A = TypeVar("A", bound=Attributes)

MVN_EPSILON = 1e-9
"""MeanVarianceNorm adds it to the standard deviation (ONNX's function body of MeanVarianceNormalization)."""


@dataclass(frozen=True)
class EpsilonAttributes(Attributes):
    """epsilon: added to the variance, so that nothing is divided by 0."""

    epsilon: float = 1e-5


@dataclass(frozen=True)
class LayerNormAttributes(AxisAttributes):
    """axis: the first of the normalized axes; all after it are normalized with it."""

    axis: int = -1
    epsilon: float = 1e-5


@dataclass(frozen=True)
class GroupNormAttributes(Attributes):
    """groups: how many parts of equal size the channels divide into."""

    groups: int
    epsilon: float = 1e-5


@dataclass(frozen=True)
class MeanVarianceNormAttributes(Attributes):
    """axes: the axes that are normalized together."""

    axes: tuple[int, ...]


def channels_last(inputs: Inputs, epsilon: float = 0.0, min_rank: int = 3) -> Tensor:
    """Return x of the inputs x [N, *spatial, C] and vectors of C each.

    min_rank: 2 for an op that also takes an x without spatial axes.
    Raises OpError unless all inputs have these shapes and one float type.
    """
    x, *vectors = present(inputs)
    same_dtype(inputs)
    need(x.dtype.is_float, f"its inputs are of type {x.dtype.value}; they must be of a float type")
    need(min_rank <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be {min_rank} to 5")
    for v in vectors:
        need(v.shape == x.shape[-1:], f"{v.name} has shape {list(v.shape)}, but x has {x.shape[-1]} channels")
    need(epsilon >= 0, f"epsilon is {epsilon}; it must not be negative")
    return x


def move_spatial(attrs: A, perm: Perm) -> tuple[A, Perm] | None:
    """Layout rule of an op that treats all spatial axes equally: batch and channels must not move."""
    return (attrs, perm) if (perm[0], perm[-1]) == (0, len(perm) - 1) else None


def move_outer(attrs: A, perm: Perm) -> tuple[A, Perm] | None:
    """Layout rule of an op that reads the last axis only: that axis must not move."""
    return (attrs, perm) if perm[-1] == len(perm) - 1 else None


def normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Compute (x - mean) / sqrt(variance + epsilon) over the axes, in double precision."""
    # The mean is subtracted first: E[x^2] - E[x]^2 would cancel where the mean is large against the
    # deviation.
    wide = x.astype(np.float64)
    centered = wide - np.mean(wide, axis=axes, keepdims=True)
    return np.asarray(centered / np.sqrt(np.mean(centered**2, axis=axes, keepdims=True) + epsilon))


def _infer_layer(inputs: Inputs, attrs: LayerNormAttributes) -> list[Spec]:
    x, *vectors = present(inputs)
    same_dtype(inputs)
    need(x.dtype.is_float, f"its inputs are of type {x.dtype.value}; they must be of a float type")
    need(attrs.epsilon >= 0, f"epsilon is {attrs.epsilon}; it must not be negative")
    inner = x.shape[axis_of(attrs.axis, len(x.shape)) :]
    for v in vectors:
        need(
            _broadcasts(v.shape, inner),
            f"{v.name} has shape {list(v.shape)}, but the normalized axes are {list(inner)}",
        )
    return [(x.dtype, x.shape)]


def _broadcasts(shape: Shape, target: Shape) -> bool:
    """Say whether numpy stretches an array of `shape` to exactly `target`."""
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _layer_norm(x: Array, scale: Array, bias: Array | None = None, *, attrs: LayerNormAttributes) -> Array:
    y = normalize(x, tuple(range(attrs.axis % x.ndim, x.ndim)), attrs.epsilon) * scale
    return (y if bias is None else y + bias).astype(x.dtype)


def _rms_norm(x: Array, scale: Array, attrs: LayerNormAttributes) -> Array:
    """Compute x / sqrt(mean(x ** 2) + epsilon) * scale.

    B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    wide = x.astype(np.float64)
    square = np.mean(wide**2, axis=tuple(range(attrs.axis % x.ndim, x.ndim)), keepdims=True)
    return np.asarray(wide / np.sqrt(square + attrs.epsilon) * scale).astype(x.dtype)


def _move_layer(attrs: LayerNormAttributes, perm: Perm) -> tuple[LayerNormAttributes, Perm] | None:
    # Scale and bias have the normalized axes in their own order, so those must stay; the outer ones may move.
    start = attrs.axis % len(perm)
    return (attrs, perm) if perm[start:] == tuple(range(start, len(perm))) else None


def _infer_group(inputs: Inputs, attrs: GroupNormAttributes) -> list[Spec]:
    x = channels_last(inputs, attrs.epsilon, min_rank=2)
    groups = attrs.groups
    need(groups >= 1, f"groups is {groups}; it must be a positive number")
    need(x.shape[-1] % groups == 0, f"{x.shape[-1]} channels do not divide into {groups} groups")
    return [(x.dtype, x.shape)]


def _group_norm(x: Array, scale: Array, bias: Array, attrs: GroupNormAttributes) -> Array:
    # Each group is a run of adjacent channels, normalized together with all pixels of its image.
    # Every length is stated: NumPy cannot tell the one that is left of an image without pixels.
    pixels = prod(x.shape[1:-1])
    groups = x.reshape(x.shape[0], pixels, attrs.groups, x.shape[-1] // attrs.groups)
    return (normalize(groups, (1, 3), attrs.epsilon).reshape(x.shape) * scale + bias).astype(x.dtype)


def _infer_mean_variance(inputs: Inputs, attrs: MeanVarianceNormAttributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"its input is of type {x.dtype.value}; it must be a float type")
    axes = [axis_of(a, len(x.shape)) for a in attrs.axes]
    need(len(set(axes)) == len(axes) > 0, f"axes {list(attrs.axes)} must be at least one, each once")
    return [(x.dtype, x.shape)]


def _mean_variance_norm(x: Array, attrs: MeanVarianceNormAttributes) -> Array:
    axes = attrs.axes
    wide = x.astype(np.float64)
    centered = wide - np.mean(wide, axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(centered**2, axis=axes, keepdims=True))
    return np.asarray(centered / (deviation + MVN_EPSILON)).astype(x.dtype)


def _move_axes(attrs: MeanVarianceNormAttributes, perm: Perm) -> tuple[MeanVarianceNormAttributes, Perm]:
    return replace(attrs, axes=tuple(sorted(perm[a % len(perm)] for a in attrs.axes))), perm


OPS = (
    Op(
        "LayerNorm",
        ("x", "scale", "bias?"),
        ("y",),
        _infer_layer,
        _layer_norm,
        LayerNormAttributes,
        move=_move_layer,
    ),
    Op(
        "RMSNorm",
        ("x", "scale"),
        ("y",),
        _infer_layer,
        _rms_norm,
        LayerNormAttributes,
        move=_move_layer,
    ),
    Op(
        "GroupNorm",
        ("x", "scale", "bias"),
        ("y",),
        _infer_group,
        _group_norm,
        GroupNormAttributes,
        move=move_spatial,
    ),
    Op(
        "MeanVarianceNorm",
        ("x",),
        ("y",),
        _infer_mean_variance,
        _mean_variance_norm,
        MeanVarianceNormAttributes,
        move=_move_axes,
    ),
)
