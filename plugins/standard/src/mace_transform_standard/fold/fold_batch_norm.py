"""fold-batch-norm: a batch norm with constants is a scale and a shift of each channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Graph
from mace_core.ops.norm import EpsilonAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow


def fold_batch_norm(graph: Graph) -> Graph:
    """Turn BatchNorm with constants into Mul and Add: (x - m) / sqrt(v + e) * s + b -> x * f + (b - m * f).

    f = s / sqrt(v + e), in double precision. fold-scale and fuse-bias take both into the filters before; what
    finds none is one BatchNorm again after fuse-scale-shift. Rounding differs by an ulp.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name != "BatchNorm":
        return None
    constants = [match.constant(i) for i in range(1, 5)]
    if any(c is None for c in constants):
        return None
    scale, bias, mean, variance = (np.asarray(c, np.float64) for c in constants)
    epsilon = match.node.attributes(EpsilonAttributes).epsilon
    # Double precision, so that factor and shift are rounded once each.
    factor = scale / np.sqrt(variance + epsilon)
    dtype = match.builder.tensors[match.node.inputs[0]].real.dtype.numpy
    name = match.node.outputs[0]
    rounded_factor, shift = narrow(factor, dtype), narrow(bias - mean * factor, dtype)
    if rounded_factor is None or shift is None:
        return None
    by = match.builder.weight(f"{name}.scale", rounded_factor)
    plus = match.builder.weight(f"{name}.shift", shift)
    scaled = match.builder.one("Mul", [match.node.inputs[0], by], like=match.node)
    return match.emit("Add", [scaled, plus])
