"""Normalizations and norms of windows, which the format has no operator for, by operators that it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType

import numpy as np

from mace_core.ir import Graph
from mace_core.ops.batch_norm import fold_moments
from mace_core.ops.norm import EpsilonAttributes, LayerNormAttributes
from mace_core.ops.pool import LpPoolAttributes, PoolAttributes
from mace_tflite_writer.rewrites.site import Site, SiteRule, rewrite_sites


def norms_by_steps(graph: Graph) -> Graph:
    """Compute BatchNorm, LayerNorm, RMSNorm and LpPool of floats by steps that the format has.

    Each step rounds to the precision of its tensors. Squares of half precision overflow from 256 on, where
    the norm itself would not.
    """
    return rewrite_sites(graph, _by_steps)


def _by_steps(site: Site) -> Sequence[str] | None:
    steps = STEPS.get(site.node.op.name)
    if steps is None or site.x.quant is not None or not site.x.dtype.is_float:
        return None
    return steps(site)


def _number(site: Site, value: object) -> str:
    return site.builder.weight(f"{site.y.name}/number", np.asarray(value, site.x.dtype.numpy))


def _batch_norm(site: Site) -> Sequence[str] | None:
    """Write x * factor + summand, with vectors that are computed now."""
    vectors = [site.builder.constant(name) for name in site.node.inputs[1:]]
    known = [vector for vector in vectors if vector is not None]
    if len(known) != len(vectors):
        return None
    factor, summand = fold_moments(*known, epsilon=site.attributes(EpsilonAttributes).epsilon)
    scaled = site.inner("Mul", [site.node.inputs[0], _number(site, factor)])
    return site.last("Add", [scaled, _number(site, summand)])


def _layer_norm(site: Site) -> Sequence[str]:
    """Write (x - mean(x)) * (mean((x - mean(x)) ** 2) + epsilon) ** -0.5 * scale + bias."""
    x = site.node.inputs[0]
    centered = site.inner("Sub", [x, site.inner("ReduceMean", [x], _inner_axes(site))])
    return _scale(site, _divide_by_root(site, centered))


def _rms_norm(site: Site) -> Sequence[str]:
    """Write x * (mean(x ** 2) + epsilon) ** -0.5 * scale."""
    return _scale(site, _divide_by_root(site, site.node.inputs[0]))


def _inner_axes(site: Site) -> dict[str, object]:
    rank = len(site.x.shape)
    first = site.attributes(LayerNormAttributes).axis % rank
    return {"axes": tuple(range(first, rank)), "keepdims": True}


def _divide_by_root(site: Site, x: str) -> str:
    variance = site.inner("ReduceMean", [site.inner("Mul", [x, x])], _inner_axes(site))
    epsilon = site.attributes(LayerNormAttributes).epsilon
    moved = site.inner("Add", [variance, _number(site, epsilon)])
    return site.inner("Mul", [x, site.inner("Rsqrt", [moved])])


def _scale(site: Site, x: str) -> Sequence[str]:
    operands = site.node.inputs[1:]
    if len(operands) < 2 or not operands[1]:
        return site.last("Mul", [x, operands[0]])
    return site.last("Add", [site.inner("Mul", [x, operands[0]]), operands[1]])


def _lp_pool(site: Site) -> Sequence[str] | None:
    """Write the sums of windows as means times their size: the root of squares, or magnitudes."""
    attrs = site.attributes(LpPoolAttributes)
    # The mean of a window that reaches beyond the padding is one of fewer elements.
    if attrs.ceil or attrs.p not in (1, 2):
        return None
    x = site.node.inputs[0]
    powers = site.inner("Mul", [x, x]) if attrs.p == 2 else site.inner("Abs", [x])
    shared = {field.name: getattr(attrs, field.name) for field in fields(PoolAttributes)}
    # Padding counts, so that each mean is of a whole kernel; its zeros add nothing to the sum.
    means = site.inner("AveragePool", [powers], {**shared, "count_pad": True})
    size = math.prod(attrs.kernel)
    if attrs.p == 1:
        return site.last("Mul", [means, _number(site, size)])
    # Roots of the two factors: their product, the sum of squares, may overflow half precision where its root
    # does not.
    return site.last("Mul", [site.inner("Sqrt", [means]), _number(site, math.sqrt(size))])


STEPS: Mapping[str, SiteRule] = MappingProxyType(
    {"BatchNorm": _batch_norm, "LayerNorm": _layer_norm, "RMSNorm": _rms_norm, "LpPool": _lp_pool}
)
"""Ops -> what adds the steps that compute them."""
