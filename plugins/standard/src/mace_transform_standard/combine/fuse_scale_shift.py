"""fuse-scale-shift: a factor and a summand for each channel are one pass instead of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Array, Graph, Node
from mace_core.ops.norm import EpsilonAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import narrow

PIXELS = 4
"""So many pixels at least: BatchNorm reads two numbers for each channel beside them."""


def fuse_scale_shift(graph: Graph) -> Graph:
    """Fuse x * a + b and (x + b) * a to BatchNorm, constants along the channels; with Sub and Div as well.

    One pass over memory instead of two. The factor of a pair is multiplied in double
    precision, so rounding differs by an ulp.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    outer = _read_affine(match, match.node)
    if outer is None:
        return None
    x, factor, summand = outer
    inner_node = match.sole_producer(
        match.node.inputs.index(x),
        *(("Mul", "Div") if match.node.op.name in ("Add", "Sub") else ("Add", "Sub")),
    )
    inner = _read_affine(match, inner_node) if inner_node else None
    if inner is None or inner_node is None:
        return None
    source, shape = match.builder.tensors[inner[0]], match.builder.shape(x)
    if (
        source.shape != shape
        or not source.real.dtype.is_float
        or not 2 <= len(shape) <= 5
        or source.elements < PIXELS * shape[-1]
    ):
        return None
    # (x * f + s) * F + S = x * (f F) + (s F + S), with mean 0 and variance 1.
    vectors = (inner[1] * factor, inner[2] * factor + summand, np.zeros(()), np.ones(()))
    stem, dtype = match.node.outputs[0], source.real.dtype.numpy
    rounded = [narrow(np.broadcast_to(vector, shape[-1:]), dtype) for vector in vectors]
    if any(vector is None for vector in rounded):
        return None
    names = [match.builder.weight(f"{stem}.{i}", v) for i, v in enumerate(rounded) if v is not None]
    attrs = EpsilonAttributes(0.0)
    return match.builder.add(
        "BatchNorm",
        [source.name, *names],
        attrs,
        outputs=match.node.outputs,
        like=match.merge_origins(inner_node),
    )


def _read_affine(match: Match, node: Node) -> tuple[str, Array, Array] | None:
    """X, factor and summand of x * factor + summand, each along the channels or one number."""
    op = node.op.name
    if op not in ("Mul", "Div", "Add", "Sub"):
        return None
    for index in (0, 1):
        constant = match.builder.constant(node.inputs[index])
        if constant is None or not _lies_along_channels(
            constant, match.builder.shape(node.inputs[1 - index])
        ):
            continue
        vector = (
            constant.astype(np.float64).reshape(-1)
            if constant.size > 1
            else constant.astype(np.float64).reshape(())
        )
        # c / x is no product with a constant, and x / 0 no finite one.
        if op == "Div" and (index == 0 or not np.all(vector)):
            return None
        factors = {
            "Mul": vector,
            "Div": 1 / vector if op == "Div" else vector,
            "Sub": np.full((), 1.0 if index else -1.0),
        }
        summands = {"Add": vector, "Sub": -vector if index else vector}
        return node.inputs[1 - index], factors.get(op, np.ones(())), summands.get(op, np.zeros(()))
    return None


def _lies_along_channels(constant: Array, shape: tuple[int, ...]) -> bool:
    if not shape or not constant.size or constant.ndim > len(shape):
        return False
    flat = constant.size == (constant.shape[-1] if constant.ndim else 1)
    return flat and constant.size in (1, shape[-1])
