"""fold-scale: multiplication by a constant for each channel becomes part of the filters before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.ops.conv import ClampAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow

FILTERED = ("Conv", "ConvTranspose", "MatMul")
MOVING = ("Reshape", "Transpose", "Slice", "Gather")
"""Ops that a number may pass, since they move its products as they do the products' operands."""


def fold_scale(graph: Graph) -> Graph:
    """Multiply constants along the channels into the filters before: a * (W x + b) -> (a W) x + a b.

    For Mul and Div after Conv, ConvTranspose and MatMul without limits. A single number goes through ops that
    only move, and through the first operand of a product of two computed matrices: so the scores of an
    attention are scaled by the filters that make the queries. Rounding differs as in every reordered product.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Mul", "Div"):
        return None
    # Quotients of integers are rounded, and their products wrap where those of folded constants saturate.
    if not match.builder.tensors[match.node.inputs[0]].real.dtype.is_float:
        return None
    is_division = match.node.op.name == "Div"
    for index in (1,) if is_division else (0, 1):
        factor, path = match.constant(index), _find_path(match, 1 - index)
        if factor is None or path is None:
            continue
        # Only a single number keeps its meaning through ops that move elements between channels.
        if (len(path) > 1 and factor.size != 1) or not _can_fold(match, path, factor):
            continue
        # Double precision, so that the product of filters and factor is rounded once.
        with np.errstate(divide="ignore"):
            wide = factor.astype(np.float64)
            wide = 1 / wide if is_division else wide
        # Filters of infinity would give NaN where the model gives infinity.
        if not np.all(np.isfinite(wide)):
            continue
        filters = _scale_filters(match, path[-1], wide)
        if filters is not None:
            return _scale_path(match, path, filters)
    return None


def _find_path(match: Match, index: int) -> list[Node] | None:
    """The nodes from an operand back to one with constant filters, none with another reader."""
    path: list[Node] = []
    current = Match(match.node, match.builder, match.uses)
    while node := current.sole_producer(0 if path else index, *FILTERED, *MOVING):
        path.append(node)
        if node.op.name in FILTERED and _has_constant_filters(match.builder, node):
            return path
        # (s a) b = s (a b): a product lets a number through unless a bias or a limit comes after it.
        is_product = node.op.name == "MatMul" and len(node.inputs) == 2 and _has_no_limits(node)
        if node.op.name not in MOVING and not is_product:
            return None
        current = Match(node, match.builder, match.uses)
    return None


def _has_constant_filters(builder: Builder, node: Node) -> bool:
    return all(not i or builder.constant(i) is not None for i in node.inputs[1:])


def _has_no_limits(node: Node) -> bool:
    return not node.attributes(ClampAttributes).is_clamped


def _can_fold(match: Match, path: Sequence[Node], factor: Array) -> bool:
    shape = match.builder.shape(path[0].outputs[0])
    channels = factor.shape[-1:]
    flat = (
        math.prod(factor.shape[:-1]) == 1
        and (not channels or channels[0] in (1, shape[-1]))
        and factor.ndim <= len(shape)
    )
    # A limit before a factor is another limit after it; a vector as matrix has no columns to scale.
    return _has_no_limits(path[-1]) and flat and len(match.builder.shape(path[-1].inputs[1])) > 1


def _scale_path(match: Match, path: Sequence[Node], filters: Sequence[str]) -> tuple[str, ...]:
    """The path from the filters on again; filters: what its first node reads, multiplied by the factor."""
    results: tuple[str, ...] = ()
    for node in reversed(path):
        is_filtered, is_last = node is path[-1], node is path[0]
        inputs = filters if is_filtered else (results[0], *node.inputs[1:])
        names = match.node.outputs if is_last else (match.builder.fresh(f"{node.outputs[0]}.scaled"),)
        like = match.merge_origins(node) if is_last else node
        results = match.builder.add(node.op, inputs, node.attrs, outputs=names, like=like)
    return results


def _scale_filters(match: Match, feeder: Node, factor: Array) -> tuple[str, ...] | None:
    """What one with constant filters reads when its results are multiplied; None if they cannot hold it."""
    builder, name = match.builder, match.node.outputs[0]
    weight = builder.weights[feeder.inputs[1]]
    columns = match.builder.shape(feeder.outputs[0])[-1]
    each = np.broadcast_to(factor.reshape(-1), (columns,))
    # Filters of a Conv are [outputs, ..., inputs], a matrix is [inputs, outputs].
    axis = weight.ndim - 1 if feeder.op.name == "MatMul" else 0
    spread = each.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    filters = narrow(weight * spread, weight.dtype)
    if filters is None:
        return None
    if len(feeder.inputs) < 3 or not feeder.inputs[2]:
        return feeder.inputs[0], builder.weight(f"{name}.filters", filters)
    bias = builder.weights[feeder.inputs[2]]
    scaled = narrow(bias * each, bias.dtype)
    if scaled is None:
        return None
    return (
        feeder.inputs[0],
        builder.weight(f"{name}.filters", filters),
        builder.weight(f"{name}.bias", scaled),
    )
