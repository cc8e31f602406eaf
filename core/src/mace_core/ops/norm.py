"""Normalisation by moments of the tensor itself: LayerNorm, RMSNorm, GroupNorm, MeanVarianceNorm.

And what its relatives share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.ir import Array, Attrs, Shape, Tensor
from mace_core.ops.op import REQUIRED, Op, OpError, Perm, Spec
from mace_core.ops.shapes import Inputs, axis_of, need, present, same_dtype

MVN_EPSILON = 1e-9
"""What MeanVarianceNorm adds to the standard deviation (ONNX's function body of MeanVarianceNormalization)."""


def channels_last(inputs: Inputs, attrs: Attrs, least: int = 3) -> Tensor:
    """Return x of the inputs x [N, *spatial, C] and vectors of C each.

    OpError unless they are that, all of one float type.

    least: the smallest rank of x; 2 where it may be without spatial axes.
    """
    x, *vectors = present(inputs)
    same_dtype(inputs)
    need(x.dtype.is_float, f"its inputs are of type {x.dtype.value}; they must be of a float type")
    need(least <= len(x.shape) <= 5, f"x has shape {list(x.shape)}; its rank must be {least} to 5")
    for v in vectors:
        need(v.shape == x.shape[-1:], f"{v.name} has shape {list(v.shape)}, but x has {x.shape[-1]} channels")
    epsilon = attrs.get("epsilon", 0.0)
    assert isinstance(epsilon, int | float)
    need(epsilon >= 0, f"epsilon is {epsilon}; it must not be negative")
    return x


def move_spatial(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm] | None:
    """Move a channels-last op to which all spatial axes are alike: batch and channels stay where they are."""
    return (attrs, perm) if (perm[0], perm[-1]) == (0, len(perm) - 1) else None


def move_outer(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm] | None:
    """Move an op that looks at the last axis only: that one stays where it is."""
    return (attrs, perm) if perm[-1] == len(perm) - 1 else None


def normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Compute (x - mean) / sqrt(variance + epsilon) over the axes, in double precision."""
    wide = x.astype(np.float64)
    centred = wide - np.mean(wide, axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt(np.mean(centred**2, axis=axes, keepdims=True) + epsilon))


def _infer_layer(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    x, *vectors = present(inputs)
    same_dtype(inputs)
    need(x.dtype.is_float, f"its inputs are of type {x.dtype.value}; they must be of a float type")
    axis, epsilon = attrs["axis"], attrs["epsilon"]
    assert isinstance(axis, int)
    assert isinstance(epsilon, int | float)
    need(epsilon >= 0, f"epsilon is {epsilon}; it must not be negative")
    inner = x.shape[axis_of(axis, len(x.shape)) :]
    for v in vectors:
        need(
            _broadcasts(v.shape, inner),
            f"{v.name} has shape {list(v.shape)}, but the normalised axes are {list(inner)}",
        )
    return [(x.dtype, x.shape)]


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Say whether numpy stretches an array of `shape` to exactly `to`."""
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def _layer_norm(x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float) -> Array:
    y = normalised(x, tuple(range(axis % x.ndim, x.ndim)), epsilon) * scale
    return (y if bias is None else y + bias).astype(x.dtype)


def _rms_norm(x: Array, scale: Array, axis: int, epsilon: float) -> Array:
    """Compute x / sqrt(mean(x ** 2) + epsilon) * scale (B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", 2019)."""
    wide = x.astype(np.float64)
    square = np.mean(wide**2, axis=tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return np.asarray(wide / np.sqrt(square + epsilon) * scale).astype(x.dtype)


def _move_layer(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm] | None:
    axis = attrs["axis"]
    assert isinstance(axis, int)
    start = axis % len(perm)
    return (attrs, perm) if perm[start:] == tuple(range(start, len(perm))) else None


def _infer_group(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    x = channels_last(inputs, attrs, least=2)
    groups = attrs["groups"]
    if not isinstance(groups, int) or groups < 1:
        raise OpError(f"groups is {groups!r}; it must be a positive number")
    need(x.shape[-1] % groups == 0, f"{x.shape[-1]} channels do not divide into {groups} groups")
    return [(x.dtype, x.shape)]


def _group_norm(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    apart = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    return (normalised(apart, (1, 3), epsilon).reshape(x.shape) * scale + bias).astype(x.dtype)


def _infer_mean_variance(inputs: Inputs, attrs: Attrs) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"its input is of type {x.dtype.value}; it must be a float type")
    axes = attrs["axes"]
    if not isinstance(axes, tuple) or not all(isinstance(a, int) for a in axes):
        raise OpError(f"axes is {axes!r}; it must be a tuple of numbers")
    found = [axis_of(a, len(x.shape)) for a in axes]
    need(len(set(found)) == len(found) > 0, f"axes {list(axes)} must be at least one, each once")
    return [(x.dtype, x.shape)]


def _mean_variance_norm(x: Array, axes: tuple[int, ...]) -> Array:
    wide = x.astype(np.float64)
    centred = wide - np.mean(wide, axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=axes, keepdims=True))
    return np.asarray(centred / (deviation + MVN_EPSILON)).astype(x.dtype)


def _move_axes(attrs: Attrs, perm: Perm) -> tuple[Mapping[str, Any], Perm]:
    axes = attrs["axes"]
    assert isinstance(axes, tuple)
    return {**attrs, "axes": tuple(sorted(perm[a % len(perm)] for a in axes))}, perm


OPS = (
    Op(
        "LayerNorm",
        ("x", "scale", "bias?"),
        ("y",),
        _infer_layer,
        _layer_norm,
        {"axis": -1, "epsilon": 1e-5},
        move=_move_layer,
    ),
    Op(
        "RMSNorm",
        ("x", "scale"),
        ("y",),
        _infer_layer,
        _rms_norm,
        {"axis": -1, "epsilon": 1e-5},
        move=_move_layer,
    ),
    Op(
        "GroupNorm",
        ("x", "scale", "bias"),
        ("y",),
        _infer_group,
        _group_norm,
        {"groups": REQUIRED, "epsilon": 1e-5},
        move=move_spatial,
    ),
    Op(
        "MeanVarianceNorm",
        ("x",),
        ("y",),
        _infer_mean_variance,
        _mean_variance_norm,
        {"axes": REQUIRED},
        move=_move_axes,
    ),
)
