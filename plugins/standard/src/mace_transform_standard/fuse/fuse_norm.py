"""fuse-norm: subtraction of the mean and division by the deviation as one node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node, Shape
from mace_core.ops.norm import EpsilonAttributes, GroupNormAttributes, LayerNormAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    find_maker,
    fuse,
    is_square,
    operand_orders,
    read_factors,
    sum_with_number,
)


def fuse_norm(graph: Graph) -> Graph:
    """Fuse (x - mean) / sqrt(variance + epsilon) to LayerNorm, RMSNorm, InstanceNorm or GroupNorm.

    The forms that frameworks write, with reductions over the same axes that keep them:

    - (x - mean) / Sqrt(v) or (x - mean) * Rsqrt(v), with v = variance + epsilon;
    - x * r + (bias - mean * r) with r = Rsqrt(v) * scale, as TensorFlow writes it;
    - x / Sqrt(v) without a mean, which is RMSNorm, there also with the sum of squares: the mean times n.

    The variance is mean((x - mean) ** 2) or mean(x ** 2) - mean ** 2. The axes decide the op: the last ones
    give LayerNorm, the spatial ones InstanceNorm, all but the batch and the last but one, which then counts
    groups, GroupNorm. Exact but for the rounding of sums: the kernel never subtracts two large squares.
    """
    return rewrite(graph, _rule)


@dataclass(frozen=True)
class _Moments:
    """What a tensor is divided by: sqrt(variance of x along axes + epsilon).

    mean: the tensor that holds the mean; None where the variance is that of x * x, around 0.
    count: by how much the spelled-out variance is larger than the mean of squares: 1, or the number of
    elements where it is their sum.
    """

    x: str
    axes: tuple[int, ...]
    epsilon: float
    count: int = 1
    mean: str | None = None


@dataclass(frozen=True)
class _Affine:
    """A scale and a bias that the spelled-out form holds already; None for one that it lacks."""

    scale: Array | None = None
    bias: Array | None = None


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name in ("Mul", "Div"):
        return _fuse_quotient(match)
    return _fuse_parts(match) if match.node.op.name in ("Add", "Sub") else None


def _fuse_quotient(match: Match) -> Sequence[str] | None:
    """Fuse (x - mean) * Rsqrt(v) or (x - mean) / Sqrt(v)."""
    is_quotient = match.node.op.name == "Div"
    root_op = "Sqrt" if is_quotient else "Rsqrt"
    for value, divisor in operand_orders(match.node):
        root = find_maker(match.builder, divisor, root_op)
        moments = _read_moments(match.builder, root.inputs[0]) if root else None
        if moments is None:
            continue
        if moments.mean is None:
            return fuse(match, _choose_norm(match, moments, _Affine())) if value == moments.x else None
        if _read_centered(match.builder, value, moments.mean) == moments.x:
            return fuse(match, _choose_norm(match, moments, _Affine()))
    return None


def _fuse_parts(match: Match) -> Sequence[str] | None:
    """Fuse x * r + (bias - mean * r), or x * r - (mean * r + bias)."""
    is_sum = match.node.op.name == "Add"
    for scaled, shift in operand_orders(match.node):
        product = find_maker(match.builder, scaled, "Mul")
        for x, r in operand_orders(product) if product else ():
            fused = _match_parts(match, (x, r, shift), is_sum=is_sum)
            if fused is not None:
                return fuse(match, fused)
    return None


def _match_parts(match: Match, tensors: tuple[str, str, str], *, is_sum: bool) -> Fused | None:
    """Return the op where x * r + shift, or x * r - shift, is a norm; tensors: x, r and shift."""
    x, r, shift = tensors
    scaled = _read_scaled_moments(match.builder, r)
    if scaled is None:
        return None
    scale, moments = scaled
    if moments.x != x:
        return None
    # The product of mean and r is taken away in both forms; the bias carries the sign of the whole.
    bias = _read_shift(match, shift, (moments.mean or "", r), -1 if is_sum else 1)
    if bias is None:
        return None
    return _choose_norm(match, moments, _Affine(scale, bias if is_sum else -bias))


def _read_shift(match: Match, tensor: str, terms: tuple[str, str], sign: float) -> Array | None:
    """Return the bias where a tensor is bias + sign * (the product of the terms); zero if there is none."""
    node = find_maker(match.builder, tensor, "Add", "Sub")
    bias, factor, rest = np.zeros(()), 1.0, tensor
    if node is not None:
        is_difference = node.op.name == "Sub"
        left, right = node.inputs
        if (constant := match.builder.constant(left)) is not None:
            bias, rest, factor = constant, right, -1.0 if is_difference else 1.0
        if (constant := match.builder.constant(right)) is not None:
            bias, rest, factor = -constant if is_difference else constant, left, 1.0
    product = read_factors(match, rest)
    return bias if product.number == sign * factor and sorted(product.terms) == sorted(terms) else None


def _read_scaled_moments(builder: Builder, tensor: str) -> tuple[Array | None, _Moments] | None:
    """Return the scale and the moments where a tensor is scale * Rsqrt(variance + epsilon)."""
    node = find_maker(builder, tensor, "Mul")
    for root_name, scale_name in operand_orders(node) if node else ((tensor, ""),):
        root = find_maker(builder, root_name, "Rsqrt")
        scale = builder.constant(scale_name) if scale_name else None
        if root is None or (scale_name and scale is None):
            continue
        moments = _read_moments(builder, root.inputs[0])
        if moments and moments.mean:
            return scale, moments
    return None


def _read_moments(builder: Builder, tensor: str) -> _Moments | None:
    """Return the moments of variance + epsilon, or of the variance alone."""
    total, epsilon = sum_with_number(builder, tensor) or (tensor, 0.0)
    return _read_variance(builder, total, epsilon) if epsilon >= 0 else None


def _read_variance(builder: Builder, tensor: str, epsilon: float) -> _Moments | None:
    node = find_maker(builder, tensor, "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sub")
    if node is None:
        return None
    if node.op.name == "Sub":
        return _read_difference(builder, node, epsilon)
    squared = node.inputs[0] if node.op.name == "ReduceSumSquare" else is_square(builder, node.inputs[0])
    if squared is None or not node.attributes(ReduceAttributes).keepdims:
        return None
    axes, shape = _axes_of(builder, node), builder.shape(squared)
    if node.op.name != "ReduceMean":
        # Without epsilon, x / sqrt(sum of squares) is LpNorm, which fuse-softmax makes of it.
        return _Moments(squared, axes, epsilon, math.prod(shape[a] for a in axes)) if epsilon else None
    return _read_mean_square(builder, squared, axes, epsilon)


def _read_mean_square(
    builder: Builder, squared: str, axes: tuple[int, ...], epsilon: float
) -> _Moments | None:
    """Return the moments of mean(squared ** 2), which is around a mean where `squared` is x - mean(x)."""
    centered = find_maker(builder, squared, "Sub")
    mean = find_maker(builder, centered.inputs[1], "ReduceMean") if centered else None
    if centered is None or mean is None or mean.inputs[0] != centered.inputs[0]:
        return _Moments(squared, axes, epsilon)
    if _axes_of(builder, mean) != axes or not mean.attributes(ReduceAttributes).keepdims:
        return None
    return _Moments(centered.inputs[0], axes, epsilon, 1, centered.inputs[1])


def _read_difference(builder: Builder, node: Node, epsilon: float) -> _Moments | None:
    """Return the moments where a tensor is mean(x ** 2) - mean ** 2."""
    squares, mean_name = find_maker(builder, node.inputs[0], "ReduceMean"), is_square(builder, node.inputs[1])
    mean = find_maker(builder, mean_name, "ReduceMean") if mean_name else None
    if squares is None or mean is None or is_square(builder, squares.inputs[0]) != mean.inputs[0]:
        return None
    axes = _axes_of(builder, squares)
    keep_axes = all(node.attributes(ReduceAttributes).keepdims for node in (squares, mean))
    if axes != _axes_of(builder, mean) or not keep_axes:
        return None
    return _Moments(mean.inputs[0], axes, epsilon, 1, mean_name)


def _read_centered(builder: Builder, tensor: str, mean: str) -> str | None:
    """Return the x where a tensor is x - mean."""
    node = find_maker(builder, tensor, "Sub")
    return node.inputs[0] if node and node.inputs[1] == mean else None


def _axes_of(builder: Builder, reduction: Node) -> tuple[int, ...]:
    rank = len(builder.shape(reduction.inputs[0]))
    return tuple(sorted(axis % rank for axis in reduction.attributes(ReduceAttributes).axes))


def _choose_norm(match: Match, moments: _Moments, affine: _Affine) -> Fused | None:
    """Return the op for these axes; None if there is none, or if scale or bias do not lie along them."""
    shape = match.builder.shape(moments.x)
    rank, first = len(shape), min(moments.axes, default=0)
    if rank == 0 or 0 in shape:
        return None
    if moments.axes == tuple(range(first, rank)):
        return _make_row_norm(match, moments, affine)
    if not moments.mean:
        return None  # there is no op that divides channels by their root mean square
    spatial = tuple(range(1, rank - 1))
    if moments.axes == spatial and 3 <= rank <= 5:
        names = _make_vectors(match, moments.x, affine, shape[-1:])
        return (
            Fused("InstanceNorm", [moments.x, *names], EpsilonAttributes(moments.epsilon)) if names else None
        )
    # [batch, ..., groups, channels of a group]: GroupNorm wants the last two as one axis.
    if moments.axes == (*spatial[:-1], rank - 1) and 4 <= rank <= 6:
        names = _make_vectors(match, moments.x, affine, shape[-2:])
        wide_shape = (*shape[:-2], shape[-2] * shape[-1])
        attrs = GroupNormAttributes(shape[-2], moments.epsilon)
        return Fused("GroupNorm", [moments.x, *names], attrs, wide_shape) if names else None
    return None


def _make_row_norm(match: Match, moments: _Moments, affine: _Affine) -> Fused | None:
    """Return LayerNorm or RMSNorm over the last axes."""
    shape = match.builder.shape(moments.x)
    first = min(moments.axes, default=0)
    normalized = shape[first:]
    # x / sqrt(sum + epsilon) is x / sqrt(mean + epsilon / n) / sqrt(n), hence this scale.
    default = np.full(shape[-1:], 1 / np.sqrt(moments.count))
    scale = default if affine.scale is None else _fit_to_axes(affine.scale, normalized)
    vectors: list[Array | None] = [scale]
    if affine.bias is not None:
        vectors.append(_fit_to_axes(affine.bias, normalized))
    names = _make_weights(match, moments.x, vectors)
    if not names:
        return None
    attrs = LayerNormAttributes(first - len(shape), moments.epsilon / moments.count)
    return Fused("LayerNorm" if moments.mean else "RMSNorm", [moments.x, *names], attrs)


def _make_vectors(match: Match, x: str, affine: _Affine, axes: Shape) -> list[str] | None:
    """Return the names of scale and bias, 1 and 0 where absent, with these axes as one of channels."""
    scale = np.ones(()) if affine.scale is None else affine.scale
    bias = np.zeros(()) if affine.bias is None else affine.bias
    vectors: list[Array | None] = []
    for vector in (_fit_to_axes(scale, axes), _fit_to_axes(bias, axes)):
        if vector is not None and len(axes) > 1:
            vector = np.broadcast_to(vector, axes).reshape(-1)
        vectors.append(vector)
    return _make_weights(match, x, vectors)


def _make_weights(match: Match, x: str, vectors: Sequence[Array | None]) -> list[str] | None:
    """Add scale and bias as new constants, and return their names; None if one of them is None."""
    dtype = match.builder.tensors[x].real.dtype.numpy
    if any(vector is None for vector in vectors):
        return None
    names = [f"{match.node.outputs[0]}.{part}" for part in ("scale", "bias")]
    pairs = zip(names, vectors, strict=False)
    return [match.builder.weight(name, vector.astype(dtype)) for name, vector in pairs if vector is not None]


def _fit_to_axes(vector: Array, axes: Shape) -> Array | None:
    """Return a constant with the shape of these axes, or one that broadcasts to it along all but the last.

    None if it lies along other axes as well.
    """
    lead = max(vector.ndim - len(axes), 0)
    if any(size != 1 for size in vector.shape[:lead]):
        return None
    flat = vector.reshape(vector.shape[lead:])
    pairs = zip(reversed(flat.shape), reversed(axes), strict=False)
    if any(size not in (1, axis_size) for size, axis_size in pairs):
        return None
    # Kernels read a whole last axis of scale and bias, and broadcast the others.
    return np.broadcast_to(flat, (*flat.shape[:-1], axes[-1]))
