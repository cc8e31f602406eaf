"""fold-scale: multiplication by a constant for each channel becomes part of the filters before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node
from mace_core.rewrite import Match, rewrite

FILTERED = ("Conv", "ConvTranspose", "MatMul")
MOVING = ("Reshape", "Transpose", "Slice", "Gather")
"""Ops that a number may pass, since they move its products as they do the products' operands."""


def fold_scale(graph: Graph) -> Graph:
    """Take Mul and Div by constants along the channels into the filters and bias of the op before them.

    A single number goes through ops that only move, and through the first operand of a product of two
    computed matrices: the scores of an attention are scaled by what makes the queries.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name not in ("Mul", "Div"):
        return None
    for at in (0, 1) if match.node.op.name == "Mul" else (1,):
        factor, path = match.constant(at), _path(match, 1 - at)
        if (
            factor is None
            or path is None
            or (len(path) > 1 and factor.size != 1)
            or not _foldable(match, path, factor)
        ):
            continue
        with np.errstate(divide="ignore"):
            wide = 1 / factor.astype(np.float64) if match.node.op.name == "Div" else factor.astype(np.float64)
        if np.all(np.isfinite(wide)):
            return _scaled(match, path, wide)
    return None


def _path(match: Match, index: int) -> list[Node] | None:
    """The nodes from an operand back to one with constant filters, none with another reader."""
    found: list[Node] = []
    at = Match(match.node, match.new, match.uses)
    while node := at.sole_producer(0 if found else index, *FILTERED, *MOVING):
        found.append(node)
        if node.op.name in FILTERED and _constant(match.new, node):
            return found
        free = node.op.name in MOVING or (
            node.op.name == "MatMul" and len(node.inputs) == 2 and _unlimited(node)
        )
        if not free:
            return None
        at = Match(node, match.new, match.uses)
    return None


def _constant(new: Builder, node: Node) -> bool:
    return all(not i or new.constant(i) is not None for i in node.inputs[1:])


def _unlimited(node: Node) -> bool:
    return node.attrs["low"] == -math.inf and node.attrs["high"] == math.inf


def _foldable(match: Match, path: Sequence[Node], factor: Array) -> bool:
    shape = match.new.shape(path[0].outputs[0])
    along = factor.shape[-1:] if factor.ndim else ()
    flat = (
        math.prod(factor.shape[:-1]) == 1
        and (not along or along[0] in (1, shape[-1]))
        and factor.ndim <= len(shape)
    )
    return _unlimited(path[-1]) and flat and len(match.new.shape(path[-1].inputs[1])) > 1


def _scaled(match: Match, path: Sequence[Node], factor: Array) -> tuple[str, ...]:
    """The path from the filters on again, those multiplied by the factor."""
    made: tuple[str, ...] = ()
    for node in reversed(path):
        inputs = [*_filters(match, node, factor)] if node is path[-1] else [made[0], *node.inputs[1:]]
        outputs = match.node.outputs if node is path[0] else [match.new.fresh(f"{node.outputs[0]}.scaled")]
        like = match.merge_origins(node) if node is path[0] else node
        made = match.new.add(node.op, inputs, node.attrs, outputs=outputs, like=like)
    return made


def _filters(match: Match, feeder: Node, factor: Array) -> tuple[str, ...]:
    """What a node with constant filters reads when its results are multiplied."""
    new, name = match.new, match.node.outputs[0]
    weight = new.weights[feeder.inputs[1]]
    columns = match.new.shape(feeder.outputs[0])[-1]
    each = np.broadcast_to(factor.reshape(-1), (columns,))
    axis = weight.ndim - 1 if feeder.op.name == "MatMul" else 0
    spread = each.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
    inputs = (feeder.inputs[0], new.weight(f"{name}.filters", (weight * spread).astype(weight.dtype)))
    if len(feeder.inputs) < 3 or not feeder.inputs[2]:
        return inputs
    bias = new.weights[feeder.inputs[2]]
    return (*inputs, new.weight(f"{name}.bias", (bias * each).astype(bias.dtype)))
