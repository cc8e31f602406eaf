"""TreeEnsemble: decision trees over the features of each row, and an aggregate of the leaves' weights.

Nodes of all trees lie in one list, children after their parents, so that every descent ends. `links` has
three numbers for each node. Of an inner node: its feature, the child if its test is true, the child if it is
false. Of a leaf: -1, and the range of `targets` and `weights` that it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, need_indices, present

TESTS = ("<=", "<", ">=", ">", "==", "!=")
"""The comparison of a feature (left) with a node's split (right); the index is the code in `modes`."""

MISSING = 8
"""Added to the code of a node whose test is also true for NaN, a missing value."""

Aggregate = Literal["sum", "average", "min", "max"]
LEAF = -1

MAX_NODES = (1 << 31) - 1
"""Upper bound, because kernels number nodes, weights and features with 32 bits."""


@dataclass(frozen=True)
class TreeEnsembleAttributes(Attributes):
    """outputs: number of outputs of each row.  aggregate: how the weights of leaves are combined."""

    outputs: int
    aggregate: Aggregate = "sum"


def _infer(inputs: Inputs, attrs: TreeEnsembleAttributes) -> list[Spec]:
    x, splits, links, modes, roots, targets, weights = present(inputs[:7])
    base = inputs[7] if len(inputs) > 7 else None
    need(x.dtype in (DType.F32, DType.F64), f"x is of type {x.dtype.value}; it must be f32 or f64")
    need(len(x.shape) == 2, f"x has shape {list(x.shape)}; its rank must be 2")
    count, outputs = splits.elements, attrs.outputs
    need(0 < outputs <= MAX_NODES, f"outputs is {outputs}")
    need(max(count, weights.elements, x.shape[1]) <= MAX_NODES, "more than 2^31 nodes, weights or features")
    for tensor in (links, modes, roots, targets):
        need_indices(tensor, tensor.name)
    for tensor in filter(None, (splits, weights, base)):
        need(
            tensor.dtype is x.dtype,
            f"{tensor.name} is of type {tensor.dtype.value}; it must be {x.dtype.value}, as x is",
        )
    need(
        splits.shape == modes.shape == (count,) and links.shape == (count, 3),
        "splits, links and modes differ in their number of nodes",
    )
    need(targets.shape == weights.shape and len(targets.shape) == 1, "targets and weights differ in number")
    need(len(roots.shape) == 1, f"roots have shape {list(roots.shape)}")
    need(base is None or base.shape == (outputs,), f"base must have shape [{outputs}]")
    return [(x.dtype, (x.shape[0], outputs))]


def fault(links: Array, modes: Array, roots: Array, targets: Array, sizes: tuple[int, int]) -> str | None:
    """Return what is wrong with the nodes of an ensemble, or None if every descent ends in a leaf.

    sizes: number of features of x, and of outputs.
    """
    features, outputs = sizes
    links = np.asarray(links, np.int64)
    positions = np.arange(len(links))
    inner = links[:, 0] != LEAF
    if not ((links[:, 0] >= LEAF) & (links[:, 0] < features)).all():
        return f"a node reads a feature that is none of {features}"
    # Children after their parents: without this a damaged model could send a descent around forever.
    children = links[inner, 1:]
    if not ((children > positions[inner, None]) & (children < len(links))).all():
        return "a child does not lie after its parent"
    ranges = links[~inner, 1:]
    if not ((ranges[:, 0] >= 0) & (ranges[:, 0] <= ranges[:, 1]) & (ranges[:, 1] <= len(targets))).all():
        return "a leaf has weights that do not exist"
    if not ((np.asarray(roots) >= 0) & (np.asarray(roots) < len(links))).all():
        return "a root is no node"
    if not ((np.asarray(targets) >= 0) & (np.asarray(targets) < outputs)).all():
        return f"a weight belongs to none of {outputs} outputs"
    codes = np.asarray(modes, np.int64)
    is_known = (codes >= 0) & (codes % MISSING < len(TESTS)) & (codes < 2 * MISSING)
    return None if is_known.all() else "a node has an unknown mode"


def _leaves(x: Array, splits: Array, links: Array, modes: Array, roots: Array) -> Array:
    """Return the leaf that each row reaches in each tree."""
    nodes = np.broadcast_to(roots, (len(x), len(roots))).astype(np.int64)
    # All rows descend all trees at once, one level a round; rows that have reached a leaf wait there.
    while True:
        feature = links[nodes, 0]
        inner = feature != LEAF
        if not inner.any():
            return nodes
        value, split, code = np.take_along_axis(x, np.maximum(feature, 0), 1), splits[nodes], modes[nodes]
        tests = (value <= split, value < split, value >= split, value > split, value == split, value != split)
        holds = np.select([code % MISSING == i for i in range(len(TESTS))], tests) | (
            (code >= MISSING) & np.isnan(value)
        )
        nodes = np.where(inner, np.where(holds, links[nodes, 1], links[nodes, 2]), nodes)


def _trees(x: Array, splits: Array, *nodes: Array, attrs: TreeEnsembleAttributes) -> Array:
    """Descend all trees and combine their leaves; an output that no leaf adds to is 0."""
    links, modes, roots, targets, weights, *base = nodes
    outputs, aggregate = attrs.outputs, attrs.aggregate
    problem = fault(links, modes, roots, targets, (x.shape[1], outputs))
    if problem:
        raise ValueError(problem)
    # Sums run in the order of the trees and in the type of x, not in double precision: so ONNX Runtime adds
    # for one row, and a sum that lies at the border of two classes decides which one wins.
    start = {"min": np.inf, "max": -np.inf}.get(aggregate, 0)
    combine = {"min": np.minimum, "max": np.maximum}.get(aggregate, np.add)
    scores = np.full((len(x), outputs), start, x.dtype)
    has_score = np.zeros(scores.shape, bool)
    for leaves in _leaves(x, splits, links, modes, roots).T:
        first, last = links[leaves, 1], links[leaves, 2]
        rows = np.repeat(np.arange(len(x)), last - first)
        ranges = [np.arange(a, b) for a, b in zip(first, last, strict=True)]
        entries = np.concatenate(ranges or [np.zeros(0)]).astype(np.int64)
        combine.at(scores, (rows, targets[entries]), weights[entries])
        has_score[rows, targets[entries]] = True
    scores[~has_score] = 0
    if aggregate == "average":
        scores = scores / x.dtype.type(len(roots))
    return np.asarray(scores + base[0] if base and base[0] is not None else scores)


OPS = (
    Op(
        "TreeEnsemble",
        ("x", "splits", "links", "modes", "roots", "targets", "weights", "base?"),
        ("y",),
        _infer,
        _trees,
        TreeEnsembleAttributes,
    ),
)
