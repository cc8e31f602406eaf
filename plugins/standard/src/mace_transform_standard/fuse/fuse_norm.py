"""fuse-norm: subtraction of the mean and division by the deviation as one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import (
    Fused,
    fuse,
    is_square,
    made_by,
    orders,
    product_at,
    sum_with_number,
)


def fuse_norm(graph: Graph) -> Graph:
    """Fuse (x - mean) / sqrt(variance + epsilon); reduce-strength and remove-duplicates have run before.

    As a quotient by Sqrt or a product with Rsqrt; the variance as the mean of (x - mean) ** 2, or of x **
    2 less mean ** 2; in the parts x * r + (bias - mean * r) with r = Rsqrt(variance + epsilon) * scale;
    and without means, as RMSNorm, there also by the sum of squares, which is the mean times their number.
    All reductions over the same axes: the last ones give LayerNorm, the spatial ones InstanceNorm, all
    but the batch and the last but one, which counts groups, GroupNorm. fuse-affine takes in a scale and a
    bias after it.
    """
    return rewrite(graph, _rule)


@dataclass(frozen=True)
class _Moments:
    """What a tensor is divided by: sqrt(scale * (its variance) + epsilon) of x along axes.

    `mean` is None where it is that of x * x.
    """

    x: str
    axes: tuple[int, ...]
    epsilon: float
    count: int = 1
    mean: str | None = None


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name in ("Mul", "Div"):
        return _whole(match)
    return _in_parts(match) if match.node.op.name in ("Add", "Sub") else None


def _whole(match: Match) -> Sequence[str] | None:
    """A product with Rsqrt or a quotient by Sqrt."""
    root = "Sqrt" if match.node.op.name == "Div" else "Rsqrt"
    for value, divisor in orders(match.node)[: 2 if root == "Rsqrt" else 1]:
        found = made_by(match.new, divisor, root)
        moments = _moments(match.new, found.inputs[0]) if found else None
        if moments is None:
            continue
        if moments.mean is None:
            return fuse(match, _norm(match, moments) if value == moments.x else None)
        if _centred(match.new, value, moments.mean) == moments.x:
            return fuse(match, _norm(match, moments))
    return None


def _in_parts(match: Match) -> Sequence[str] | None:
    """Of the form x * r + (bias - mean * r), or x * r - (mean * r + bias)."""
    adds = match.node.op.name == "Add"
    for scaled, shift in orders(match.node)[: 2 if adds else 1]:
        first = made_by(match.new, scaled, "Mul")
        for x, r in orders(first) if first else ():
            found = _scaled_moments(match.new, r)
            bias = (
                _shift(match, shift, (found[1].mean or "", r), -1 if adds else 1)
                if found and found[1].x == x
                else None
            )
            if found and bias is not None:
                return fuse(match, _norm(match, found[1], found[0], bias if adds else -bias))
    return None


def _shift(match: Match, tensor: str, terms: tuple[str, str], sign: float) -> Array | None:
    """The bias where a tensor is bias + sign * (the product of the terms); zero if there is none."""
    node = made_by(match.new, tensor, "Add", "Sub")
    bias, factor, rest = np.zeros(()), 1.0, tensor
    for at in (0, 1) if node else ():
        assert node is not None
        constant = match.new.constant(node.inputs[at])
        if constant is not None:
            less = node.op.name == "Sub"
            bias, rest = (-constant if less and at else constant), node.inputs[1 - at]
            factor = -1.0 if less and not at else 1.0
    found = product_at(match, rest)
    return bias if found.number == sign * factor and sorted(found.terms) == sorted(terms) else None


def _scaled_moments(new: Builder, tensor: str) -> tuple[Array | None, _Moments] | None:
    """The scale and the moments where a tensor is scale * Rsqrt(variance + epsilon)."""
    node = made_by(new, tensor, "Mul")
    for root, scale in orders(node) if node else ((tensor, ""),):
        found = made_by(new, root, "Rsqrt")
        constant = new.constant(scale) if scale else None
        moments = _moments(new, found.inputs[0]) if found and (constant is not None or not scale) else None
        if moments and moments.mean:
            return constant, moments
    return None


def _moments(new: Builder, tensor: str) -> _Moments | None:
    """Of variance + epsilon, or the variance alone."""
    total, epsilon = sum_with_number(new, tensor) or (tensor, 0.0)
    return _variance(new, total, epsilon) if epsilon >= 0 else None


def _variance(new: Builder, tensor: str, epsilon: float) -> _Moments | None:
    node = made_by(new, tensor, "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sub")
    if node is None:
        return None
    if node.op.name == "Sub":
        return _difference(new, node, epsilon)
    source = node.inputs[0] if node.op.name == "ReduceSumSquare" else is_square(new, node.inputs[0])
    if source is None or not node.attrs["keepdims"]:
        return None
    axes, shape = _axes(new, node), new.shape(source)
    count = 1 if node.op.name == "ReduceMean" else int(np.prod([shape[a] for a in axes]))
    if node.op.name != "ReduceMean" and epsilon == 0:
        return None  # fuse-softmax makes LpNorm of it
    centred = made_by(new, source, "Sub")
    mean = made_by(new, centred.inputs[1], "ReduceMean") if centred else None
    if centred and mean and node.op.name == "ReduceMean" and mean.inputs[0] == centred.inputs[0]:
        same = _axes(new, mean) == axes and mean.attrs["keepdims"]
        return _Moments(centred.inputs[0], axes, epsilon, 1, centred.inputs[1]) if same else None
    return _Moments(source, axes, epsilon, count)


def _difference(new: Builder, node: Node, epsilon: float) -> _Moments | None:
    """The mean of the squares less the square of the mean."""
    squares, mean = made_by(new, node.inputs[0], "ReduceMean"), is_square(new, node.inputs[1])
    of_mean = made_by(new, mean, "ReduceMean") if mean else None
    if squares is None or of_mean is None or is_square(new, squares.inputs[0]) != of_mean.inputs[0]:
        return None
    same = (
        _axes(new, squares) == _axes(new, of_mean) and squares.attrs["keepdims"] and of_mean.attrs["keepdims"]
    )
    return _Moments(of_mean.inputs[0], _axes(new, squares), epsilon, 1, mean) if same else None


def _centred(new: Builder, tensor: str, mean: str) -> str | None:
    node = made_by(new, tensor, "Sub")
    return node.inputs[0] if node and node.inputs[1] == mean else None


def _axes(new: Builder, node: Node) -> tuple[int, ...]:
    rank = len(new.shape(node.inputs[0]))
    return tuple(sorted(a % rank for a in integers(node.attrs, "axes")))


def _norm(
    match: Match, moments: _Moments, scale: Array | None = None, bias: Array | None = None
) -> Fused | None:
    """The op for these axes; None if there is none, or if scale or bias do not lie along them."""
    shape = match.new.shape(moments.x)
    rank, first, spatial = len(shape), min(moments.axes, default=0), tuple(range(1, len(shape) - 1))
    epsilon = {"epsilon": moments.epsilon / moments.count}
    if rank == 0 or 0 in shape:
        return None
    if moments.axes == tuple(range(first, rank)):
        vectors = [_lying(v, shape[first:]) for v in (scale, bias) if v is not None]
        wide = np.full(shape[-1:], 1 / np.sqrt(moments.count)) if scale is None else vectors[0]
        names = _weights(match, moments.x, [wide, *vectors[scale is not None :]])
        op = "LayerNorm" if moments.mean else "RMSNorm"
        return Fused(op, [moments.x, *names], {"axis": first - rank, **epsilon}) if names else None
    along = (np.ones(()) if scale is None else scale, np.zeros(()) if bias is None else bias)
    if moments.mean and moments.axes == spatial and 3 <= rank <= 5:
        names = _weights(match, moments.x, [_lying(v, shape[-1:]) for v in along])
        return Fused("InstanceNorm", [moments.x, *names], epsilon) if names else None
    if moments.mean and moments.axes == (*spatial[:-1], rank - 1) and 4 <= rank <= 6:
        names = _weights(match, moments.x, [_over(_lying(v, shape[-2:]), shape[-2:]) for v in along])
        wide_shape = (*shape[:-2], shape[-2] * shape[-1])
        return (
            Fused("GroupNorm", [moments.x, *names], {"groups": shape[-2], **epsilon}, wide_shape)
            if names
            else None
        )
    return None


def _weights(match: Match, x: str, vectors: Sequence[Array | None]) -> list[str] | None:
    """Scale and bias as new constants; None if one of them is none."""
    dtype = match.new.tensors[x].real.dtype.numpy
    if any(v is None for v in vectors):
        return None
    names = [f"{match.node.outputs[0]}.{part}" for part in ("scale", "bias")]
    return [
        match.new.weight(n, v.astype(dtype)) for n, v in zip(names, vectors, strict=False) if v is not None
    ]


def _over(vector: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A constant of groups and their channels as one of all channels."""
    return None if vector is None else np.broadcast_to(vector, shape).reshape(-1)


def _lying(vector: Array, along: tuple[int, ...]) -> Array | None:
    """A constant as one of these axes' shape or of one that broadcasts to it.

    None if it lies along others as well.
    """
    lead = max(vector.ndim - len(along), 0)
    flat = vector.reshape(vector.shape[lead:]) if all(d == 1 for d in vector.shape[:lead]) else None
    if flat is None or any(
        d not in (1, n) for d, n in zip(reversed(flat.shape), reversed(along), strict=False)
    ):
        return None
    return np.broadcast_to(flat, (*flat.shape[:-1], along[-1]))
