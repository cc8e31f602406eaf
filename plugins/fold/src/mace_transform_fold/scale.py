"""fold-scale: multiplication by a constant for each channel becomes part of the filters before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.build import Match, rewrite
from mace_core.ir import Array, Graph, Node

FILTERED = ("Conv", "ConvTranspose", "MatMul")


def fold_scale(graph: Graph) -> Graph:
    """Take Mul and Div by constants along the channels into the constant filters and bias of the op before them."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Mul", "Div"):
        return None
    for at in (0, 1) if match.node.op.name == "Mul" else (1,):
        feeder = match.feeder(1 - at, *FILTERED)
        factor = match.constant(at)
        if feeder is not None and factor is not None and _foldable(match, feeder, factor):
            wide = factor.astype(np.float64)
            return _scaled(match, feeder, 1 / wide if match.node.op.name == "Div" else wide)
    return None


def _foldable(match: Match, feeder: Node, factor: Array) -> bool:
    shape = match.new.shape(feeder.outputs[0])
    along = factor.shape[-1:] if factor.ndim else ()
    free = feeder.attrs["low"] == -math.inf and feeder.attrs["high"] == math.inf
    constant = all(not i or match.new.constant(i) is not None for i in feeder.inputs[1:])
    flat = math.prod(factor.shape[:-1]) == 1 and (not along or along[0] in (1, shape[-1])) and factor.ndim <= len(shape)
    return free and constant and flat and match.new.shape(feeder.inputs[1]) != ()


def _scaled(match: Match, feeder: Node, factor: Array) -> tuple[str, ...]:
    new, name = match.new, match.node.outputs[0]
    weight = new.weights[feeder.inputs[1]]
    columns = match.new.shape(feeder.outputs[0])[-1]
    each = np.broadcast_to(factor.reshape(-1), (columns,))
    axis = weight.ndim - 1 if feeder.op.name == "MatMul" else 0
    spread = each.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    inputs = [feeder.inputs[0], new.weight(f"{name}.filters", (weight * spread).astype(weight.dtype))]
    if len(feeder.inputs) > 2 and feeder.inputs[2]:
        bias = new.weights[feeder.inputs[2]]
        inputs.append(new.weight(f"{name}.bias", (bias * each).astype(bias.dtype)))
    return new.add(feeder.op, inputs, feeder.attrs, outputs=match.node.outputs, like=match.joined(feeder))
