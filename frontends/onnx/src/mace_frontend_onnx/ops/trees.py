"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml.

Features are compared in their own precision, single or double, and leaves added in it, tree by tree, as ONNX
Runtime does for one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import (
    TRANSFORMS,
    apply_post_transform,
    as_float,
    complete_two_classes,
    emit_best_class,
    emit_label,
    emit_second_class_if,
    input_matrix,
    read_labels,
    transform_single_score,
)
from mace_frontend_onnx.tree_arrays import MEMBER, TreeNodes, lay_out

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""In the order of the IR's codes."""

CODES = (0, 1, 2, 3, 4, 5, MEMBER)
"""The IR's codes of TreeEnsemble's modes, which are numbers."""

AGGREGATES = ("average", "sum", "min", "max")
"""In the order of their codes in TreeEnsemble."""


@dataclass(frozen=True)
class Trees:
    """The trees of a node: their nodes, the indices of the roots, and each node's range of leaf weights.

    targets, weights: for each leaf weight the output that it is added to, and its value.
    """

    nodes: TreeNodes
    roots: Sequence[int]
    ranges: Sequence[tuple[int, int]]
    targets: Array
    weights: Array


@dataclass(frozen=True)
class Scores:
    """What an ensemble gives for a row: the number of outputs, how they aggregate, and what they start with.

    is_double: whether a number of the file is in double precision.
    """

    outputs: int
    aggregate: str
    base: Array
    is_double: bool


def _read_floats(node: OnnxNode, attr: str) -> Array:
    """Return a list of floats, or the tensor that may hold it in double precision instead (version 3)."""
    tensor = node.attr(f"{attr}_as_tensor")
    if tensor is not None:
        values = node.importer.file.array(tensor).reshape(-1)
        if len(values):
            return values
    return np.asarray(node.attr(attr) or (), np.float32)


def _read_column(node: OnnxNode, attr: str, count: int) -> Sequence[Any]:
    """Return a list of `count` values; RefusedError if it has another length."""
    values: Sequence[Any] = node.attr(attr) or ()
    node.refuse_unless(len(values) == count, f"its {attr} are {len(values)}; expected {count}")
    return values


def _read_missing(node: OnnxNode, count: int) -> Sequence[int]:
    """Return for each node whether NaN passes its test; without the attribute none does."""
    attr = "nodes_missing_value_tracks_true"
    return _read_column(node, attr, count) if node.attr(attr) else (0,) * count


def _read_nodes(node: OnnxNode) -> tuple[TreeNodes, list[int], dict[tuple[int, int], int]]:
    """Return the nodes of a classifier or regressor, the roots, and each node's index by tree and number."""
    trees = node.attr("nodes_treeids") or ()
    count = len(trees)
    numbers, modes = _read_column(node, "nodes_nodeids", count), _read_column(node, "nodes_modes", count)
    unknown = sorted({*modes} - {*MODES, "LEAF"})
    node.refuse_unless(not unknown, f"modes {', '.join(map(str, unknown))}")
    indices = {key: index for index, key in enumerate(zip(trees, numbers, strict=True))}
    node.refuse_unless(len(indices) == count, "two of its nodes have the same number")
    children = []
    for side in ("true", "false"):
        keys = zip(trees, _read_column(node, f"nodes_{side}nodeids", count), strict=True)
        children.append([indices.get(key, -1) for key in keys])
    splits = _read_floats(node, "nodes_values")
    node.refuse_unless(len(splits) == count, f"its nodes_values are {len(splits)}; expected {count}")
    leaves = [mode == "LEAF" for mode in modes]
    # A leaf compares nothing: any mode will do.
    codes = [MODES.index("BRANCH_LEQ" if mode == "LEAF" else mode) for mode in modes]
    features, missing = _read_column(node, "nodes_featureids", count), _read_missing(node, count)
    nodes = TreeNodes(features, codes, splits.tolist(), missing, children[0], children[1], leaves)
    # ONNX Runtime takes the first node of each tree for its root.
    first = {tree: index for index, tree in reversed(list(enumerate(trees)))}
    return nodes, sorted(first.values()), indices


def _weights_by_leaf(
    node: OnnxNode, kind: str, indices: Mapping[tuple[int, int], int], leaves: Sequence[bool]
) -> list[list[int]]:
    """Return for each node the indices of its weights; kind: "class" or "target"."""
    trees = node.attr(f"{kind}_treeids") or ()
    numbers = _read_column(node, f"{kind}_nodeids", len(trees))
    weights: list[list[int]] = [[] for _ in leaves]
    for weight, key in enumerate(zip(trees, numbers, strict=True)):
        if key not in indices:
            problem = f"a weight belongs to node {key[1]} of tree {key[0]}, which does not exist"
            raise RefusedError(f"{problem}; export the model again")
        # Weights of inner nodes do not count, as in ONNX Runtime.
        if leaves[indices[key]]:
            weights[indices[key]].append(weight)
    return weights


def _scores(node: OnnxNode, kind: str, outputs: int, aggregate: str) -> str:
    """Return what the trees of a classifier or regressor give for each class or target."""
    nodes, roots, indices = _read_nodes(node)
    by_leaf = _weights_by_leaf(node, kind, indices, nodes.leaves)
    weights, base = _read_floats(node, f"{kind}_weights"), _read_floats(node, "base_values")
    ids = _read_column(node, f"{kind}_ids", len(weights))
    _read_column(node, f"{kind}_treeids", len(weights))
    # The IR has the weights of a leaf one behind the other.
    order = list(chain.from_iterable(by_leaf))
    bounds = np.cumsum([0, *map(len, by_leaf)]).tolist()
    targets = np.asarray(ids, np.int64)[order]
    trees = Trees(nodes, roots, list(pairwise(bounds)), targets, weights[order])
    arrays = (_read_floats(node, "nodes_values"), weights, base)
    is_double = any(array.dtype == np.float64 for array in arrays)
    return _emit_ensemble(node, trees, Scores(outputs, aggregate, base, is_double))


def _emit_ensemble(node: OnnxNode, trees: Trees, scores: Scores) -> str:
    """Add a TreeEnsemble; return its outputs, [N, outputs]."""
    x, outputs = input_matrix(node), scores.outputs
    dtype = DType.F64 if scores.is_double or node.dtype(0) is DType.F64 else DType.F32
    if node.builder.tensors[x].dtype is not dtype:
        x = node.emit("Cast", [x], {"to": dtype.value}, tag="features")
    layout = lay_out(trees.nodes, trees.roots, trees.ranges)
    features, width = np.array([feature for feature, *_ in layout.links]), node.builder.shape(x)[1]
    problem = f"a node reads feature {features.max(initial=0)} of {width}"
    node.refuse_unless(bool((features < width).all()), problem)
    is_valid = bool(((trees.targets >= 0) & (trees.targets < outputs)).all())
    node.refuse_unless(is_valid, f"a weight belongs to none of {outputs} outputs")
    arrays = {
        "splits": np.asarray(layout.splits, dtype.numpy),
        "links": np.asarray(layout.links, np.int32).reshape(-1, 3),
        "modes": np.asarray(layout.modes, np.uint8),
        "roots": np.asarray(layout.roots, np.int32),
        "targets": trees.targets.astype(np.int32),
        "weights": trees.weights.astype(dtype.numpy),
    }
    base = scores.base
    if len(base):
        node.refuse_unless(len(base) == outputs, f"{len(base)} base values for {outputs} outputs")
        arrays["base"] = base.astype(dtype.numpy)
    inputs = [x, *(node.add_constant(array, tag=tag) for tag, array in arrays.items())]
    attrs = {"outputs": outputs, "aggregate": scores.aggregate}
    return node.emit("TreeEnsemble", inputs, attrs, tag="trees")


def _classifier(node: OnnxNode) -> Sequence[Result]:
    labels, transform = read_labels(node, "classlabels_int64s"), str(node.attr("post_transform"))
    used = {*(node.attr("class_ids") or ())}
    if len(labels) == 2 and len(used) == 1:
        return _two_classes(node, transform, int(*used))
    scores = as_float(node, _scores(node, "class", len(labels), "sum"))
    if len(labels) == 2:
        problem = "the label is the class of the higher score, as the standard says"
        note = f"{problem}; ONNX Runtime labels two classes that both have weights otherwise"
        node.builder.notes.append(f"node {node.name!r} ({node.op}): {note}")
    label = emit_label(node, emit_best_class(node, scores), labels)
    return [label, apply_post_transform(node, scores, transform)]


def _two_classes(node: OnnxNode, transform: str, used: int) -> Sequence[Result]:
    """Compute two classes of which only one has weights; used: which one."""
    # ONNX Runtime takes the one score for that of the second class. The second class wins above 0.5 if no
    # weight is negative, because then it takes the score for a probability, else above 0.
    labels, base = read_labels(node, "classlabels_int64s"), _read_floats(node, "base_values")
    node.refuse_unless(used in (0, 1), f"class {used} of two")
    problem = f"{len(base)} base values for the weights of class {used} of two"
    node.refuse_unless(len(base) <= 1 - used, f"{problem}; ONNX Runtime gives no sense to them")
    scores = as_float(node, _scores(node, "class", used + 1, "sum"))
    is_probability = bool((_read_floats(node, "class_weights") >= 0).all())
    score = scores
    if used:
        columns = {"axis": 1, "sizes": (1, 1)}
        _, score = node.emit_all("Split", [scores], columns, count=2, tag="classes")
    limit = node.add_float(0.5 if is_probability else 0, "limit")
    is_second = node.emit("Greater", [score, limit], tag="above")
    label = emit_label(node, emit_second_class_if(node, is_second), labels)
    if used:
        return [label, apply_post_transform(node, scores, transform)]
    return [label, complete_two_classes(node, score, transform, complement=is_probability)]


def _regressor(node: OnnxNode) -> Sequence[Result]:
    targets, transform = int(node.attr("n_targets") or 0), str(node.attr("post_transform"))
    aggregate = str(node.attr("aggregate_function") or "SUM").lower()
    node.refuse_unless(aggregate in AGGREGATES, f"aggregate_function {aggregate.upper()}")
    node.refuse_unless(targets > 0, f"n_targets is {targets}")
    scores = as_float(node, _scores(node, "target", targets, aggregate))
    if targets == 1:
        return [transform_single_score(node, scores, transform)]
    return [apply_post_transform(node, scores, transform)]


def _ensemble(node: OnnxNode) -> Sequence[Result]:
    """Compute a TreeEnsemble (version 5 of ai.onnx.ml), the successor of classifier and regressor."""
    array = node.importer.file.array
    weights = array(node.attr("leaf_weights")).reshape(-1)
    targets = np.asarray(node.attr("leaf_targetids"), np.int64)
    node.refuse_unless(len(targets) == len(weights), "its lists differ in length")
    nodes, is_double = _read_nodes_and_leaves(node, len(weights))
    leaves = len(weights)
    # Nobody reads the ranges of the inner nodes, which stand before the leaves.
    ranges = [(i, i + 1) for i in range(leaves - len(nodes.leaves), leaves)]
    roots = node.attr("tree_roots") or ()
    outputs = int(node.attr("n_targets") or 0)
    aggregate = _read_code(node, "aggregate_function", AGGREGATES)
    transform = _read_code(node, "post_transform", TRANSFORMS)
    is_double = is_double or weights.dtype == np.float64
    trees = Trees(nodes, roots, ranges, targets, weights)
    scores = _emit_ensemble(node, trees, Scores(outputs, aggregate, np.zeros(0), is_double))
    apply = transform_single_score if outputs == 1 else apply_post_transform
    result = apply(node, scores, transform)
    # TreeEnsemble gives the type of its input; the older operators always give single precision.
    if node.builder.tensors[result].dtype is node.dtype(0):
        return [result]
    return node.done("Cast", [result], {"to": node.dtype(0).value})


def _read_nodes_and_leaves(node: OnnxNode, leaves: int) -> tuple[TreeNodes, bool]:
    """Return the inner nodes of a TreeEnsemble with its leaves, a list of their own in the file, behind them.

    The second result tells whether the splits are in double precision.
    """
    array = node.importer.file.array
    modes = array(node.attr("nodes_modes")).reshape(-1)
    splits = array(node.attr("nodes_splits")).reshape(-1)
    count = len(modes)
    node.refuse_unless(len(splits) == count, "its lists differ in length")
    node.refuse_unless(bool((modes < len(CODES)).all()), f"mode {modes.max(initial=0)}")
    children = []
    for side in ("true", "false"):
        ids = np.asarray(_read_column(node, f"nodes_{side}nodeids", count))
        is_leaf = np.asarray(_read_column(node, f"nodes_{side}leafs", count), bool)
        is_valid = (ids >= 0) & (ids < np.where(is_leaf, leaves, count))
        indices = np.where(is_valid, ids + count * is_leaf, -1)
        children.append([*indices.tolist(), *[-1] * leaves])
    codes = [CODES[mode] for mode in modes]
    unused = [0] * leaves
    nodes = TreeNodes(
        [*_read_column(node, "nodes_featureids", count), *unused],
        codes + unused,
        [*splits.tolist(), *unused],
        [*_read_missing(node, count), *unused],
        children[0],
        children[1],
        [False] * count + [True] * leaves,
        _read_members(node, codes),
    )
    return nodes, splits.dtype == np.float64


def _read_code(node: OnnxNode, attr: str, words: Sequence[str]) -> str:
    """Return the word for the code in an attribute."""
    code = int(node.attr(attr))
    node.refuse_unless(0 <= code < len(words), f"{attr} {code}")
    return words[code]


def _read_members(node: OnnxNode, codes: Sequence[int]) -> dict[int, Sequence[float]]:
    """Return the set of each MEMBER node by its index."""
    indices = [index for index, code in enumerate(codes) if code == MEMBER]
    tensor = node.attr("membership_values")
    values = node.importer.file.array(tensor).reshape(-1) if tensor is not None else np.zeros(0)
    # TreeEnsemble, membership_values: the sets stand one behind the other, each ended by a NaN.
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    sets = [[v for v in part.tolist() if not np.isnan(v)] for part in parts if len(part)]
    problem = f"{len(sets)} sets for {len(indices)} nodes that ask for members"
    node.refuse_unless(len(sets) == len(indices), problem)
    return dict(zip(indices, sets, strict=True))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "ai.onnx.ml::TreeEnsemble": _ensemble,
        "ai.onnx.ml::TreeEnsembleClassifier": _classifier,
        "ai.onnx.ml::TreeEnsembleRegressor": _regressor,
    }
)
