"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml.

Features are compared in their own precision, single or double, and leaves added in it, tree by tree, as ONNX
Runtime does for one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import (
    TRANSFORMS,
    as_float,
    best,
    labelled,
    labels,
    matrix,
    number,
    of_one_class,
    of_one_target,
    second_if,
    transformed,
)
from mace_frontend_onnx.trees import MEMBER, Nodes, plan

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""In the order of the IR's codes."""

CODES = (0, 1, 2, 3, 4, 5, MEMBER)
"""The IR's codes of TreeEnsemble's modes, which are numbers."""

AGGREGATES = ("average", "sum", "min", "max")
"""In the order of their codes in TreeEnsemble."""


def _numbers(node: OnnxNode, attr: str) -> Array:
    """A list of floats, or the tensor that may hold it in double precision instead."""
    tensor = node.attr(f"{attr}_as_tensor")
    if tensor is not None and len(found := node.importer.source.array(tensor).reshape(-1)):
        return found
    return np.asarray(node.attr(attr) or (), np.float32)


def _column(node: OnnxNode, attr: str, count: int) -> Sequence[Any]:
    values: Sequence[Any] = node.attr(attr) or ()
    node.refuse_unless(len(values) == count, f"its {attr} are {len(values)}; expected {count}")
    return values


def _by_keys(node: OnnxNode, kind: str) -> tuple[Nodes, list[int], list[list[int]]]:
    """The nodes of a classifier or regressor, which are named by tree and number.

    Its roots, and the places of each leaf's weights.
    """
    trees = node.attr("nodes_treeids") or ()
    count = len(trees)
    numbers, modes = _column(node, "nodes_nodeids", count), _column(node, "nodes_modes", count)
    unknown = sorted({*modes} - {*MODES, "LEAF"})
    node.refuse_unless(not unknown, f"modes {', '.join(map(str, unknown))}")
    keys = list(zip(trees, numbers, strict=True))
    places = {key: place for place, key in enumerate(keys)}
    node.refuse_unless(len(places) == count, "two of its nodes have the same number")
    children = [_column(node, f"nodes_{side}nodeids", count) for side in ("true", "false")]
    yes, no = ([places.get((t, c), -1) for t, c in zip(trees, side, strict=True)] for side in children)
    splits = _numbers(node, "nodes_values")
    node.refuse_unless(len(splits) == count, f"its nodes_values are {len(splits)}; expected {count}")
    missing = node.attr("nodes_missing_value_tracks_true") or (0,) * count
    node.refuse_unless(
        len(missing) == count, f"its nodes_missing_value_tracks_true are {len(missing)}; expected {count}"
    )
    leaves = [mode == "LEAF" for mode in modes]
    codes = [0 if leaf else MODES.index(mode) for leaf, mode in zip(leaves, modes, strict=True)]
    nodes = Nodes(_column(node, "nodes_featureids", count), codes, splits.tolist(), missing, yes, no, leaves)
    first = {tree: place for place, tree in reversed(list(enumerate(trees)))}
    return nodes, sorted(first.values()), _weights_of_leaves(node, kind, places, leaves)


def _weights_of_leaves(
    node: OnnxNode, kind: str, places: Mapping[tuple[int, int], int], leaves: Sequence[bool]
) -> list[list[int]]:
    """For each node the places of its weights.

    Those of nodes that are no leaves count nothing, as in ONNX Runtime.
    """
    trees = node.attr(f"{kind}_treeids") or ()
    numbers = _column(node, f"{kind}_nodeids", len(trees))
    held: list[list[int]] = [[] for _ in leaves]
    for weight, key in enumerate(zip(trees, numbers, strict=True)):
        if key not in places:
            raise RefusedError(
                f"a weight belongs to node {key[1]} of tree {key[0]}, which there is not; export the model again"
            )
        if leaves[places[key]]:
            held[places[key]].append(weight)
    return held


def _scores(node: OnnxNode, kind: str, outputs: int, aggregate: str, base: Array) -> str:
    """What the trees give for each class or target, in single precision."""
    nodes, roots, held = _by_keys(node, kind)
    weights = _numbers(node, f"{kind}_weights")
    ids = _column(node, f"{kind}_ids", len(weights))
    _column(node, f"{kind}_treeids", len(weights))
    order = [place for places in held for place in places]
    ends = np.cumsum([0, *map(len, held)]).tolist()
    arrays = (np.asarray(ids, np.int64)[order], weights[order])
    double = any(a.dtype == np.float64 for a in (_numbers(node, "nodes_values"), weights, base))
    return ensemble(node, (nodes, roots, list(pairwise(ends))), arrays, (outputs, aggregate, base, double))


def ensemble(
    node: OnnxNode,
    trees: tuple[Nodes, Sequence[int], Sequence[tuple[int, int]]],
    leaves: tuple[Array, Array],
    result: tuple[int, str, Array, bool],
) -> str:
    """Emit a TreeEnsemble.

    trees: nodes, roots, and each node's range of leaf weights.  leaves: the outputs that weights belong to,
    and the weights.
    result: outputs, aggregate function, base values, and whether a number of the file is in double precision.
    """
    x = matrix(node)
    outputs, aggregate, base, double = result
    dtype = DType.F64 if double or node.dtype(0) is DType.F64 else DType.F32
    if node.builder.tensors[x].dtype is not dtype:
        x = node.emit("Cast", [x], {"to": dtype.value}, tag="features")
    made = plan(*trees)
    features, width = np.array([f for f, *_ in made.links]), node.builder.shape(x)[1]
    node.refuse_unless(
        bool((features < width).all()), f"a node reads feature {features.max(initial=0)} of {width}"
    )
    targets, weights = leaves
    node.refuse_unless(
        bool(((targets >= 0) & (targets < outputs)).all()), f"a weight belongs to none of {outputs} outputs"
    )
    arrays = {
        "splits": np.asarray(made.splits, dtype.numpy),
        "links": np.asarray(made.links, np.int32).reshape(-1, 3),
        "modes": np.asarray(made.modes, np.uint8),
        "roots": np.asarray(made.roots, np.int32),
        "targets": targets.astype(np.int32),
        "weights": weights.astype(dtype.numpy),
    }
    if len(base):
        node.refuse_unless(len(base) == outputs, f"{len(base)} base values for {outputs} outputs")
        arrays["base"] = base.astype(dtype.numpy)
    inputs = [x, *(node.add_constant(array, tag=tag) for tag, array in arrays.items())]
    return node.emit("TreeEnsemble", inputs, {"outputs": outputs, "aggregate": aggregate}, tag="trees")


def _classifier(node: OnnxNode) -> Sequence[Held]:
    names, name = labels(node, "classlabels_int64s"), str(node.attr("post_transform"))
    base, used = _numbers(node, "base_values"), {*(node.attr("class_ids") or ())}
    if len(names) == 2 and len(used) == 1:
        return _of_two(node, name, int(*used))
    scores = as_float(node, _scores(node, "class", len(names), "sum", base))
    if len(names) == 2:
        text = f"node {node.name!r} ({node.op}): the label is the class of the higher score, as the standard says"
        node.builder.notes.append(f"{text}; ONNX Runtime labels two classes that both have weights otherwise")
    return [labelled(node, best(node, scores), names), transformed(node, scores, name)]


def _of_two(node: OnnxNode, name: str, used: int) -> Sequence[Held]:
    """Two classes of which only one has weights: its score is that of the second class, against 0.5 if no weight is negative, else 0."""
    names, base = labels(node, "classlabels_int64s"), _numbers(node, "base_values")
    node.refuse_unless(used in (0, 1), f"class {used} of two")
    node.refuse_unless(
        len(base) <= 1 - used,
        f"{len(base)} base values for the weights of class {used} of two; ONNX Runtime gives no sense to them",
    )
    scores = as_float(node, _scores(node, "class", used + 1, "sum", base))
    positive = bool((_numbers(node, "class_weights") >= 0).all())
    score = scores
    if used:
        score = node.emit(
            "Slice",
            [scores],
            {"starts": (0, 1), "sizes": (node.builder.shape(scores)[0], 1), "steps": (1, 1)},
            tag="second",
        )
    above = node.emit("Greater", [score, number(node, 0.5 if positive else 0, "limit")], tag="above")
    label = labelled(node, second_if(node, above), names)
    if used:
        return [label, transformed(node, scores, name)]
    return [label, of_one_class(node, score, name, complement=positive)]


def _regressor(node: OnnxNode) -> Sequence[Held]:
    targets, name = int(node.attr("n_targets") or 0), str(node.attr("post_transform"))
    aggregate = str(node.attr("aggregate_function") or "SUM").lower()
    node.refuse_unless(aggregate in AGGREGATES, f"aggregate_function {aggregate.upper()}")
    node.refuse_unless(targets > 0, f"n_targets is {targets}")
    scores = as_float(node, _scores(node, "target", targets, aggregate, _numbers(node, "base_values")))
    return [of_one_target(node, scores, name) if targets == 1 else transformed(node, scores, name)]


def _ensemble(node: OnnxNode) -> Sequence[Held]:
    """TreeEnsemble (version 5), whose inner nodes and leaves are lists of their own: leaves are put behind the inner nodes."""
    array = node.importer.source.array
    modes, splits = array(node.attr("nodes_modes")).reshape(-1), array(node.attr("nodes_splits")).reshape(-1)
    weights, targets = (
        array(node.attr("leaf_weights")).reshape(-1),
        np.asarray(node.attr("leaf_targetids"), np.int64),
    )
    count, leaves = len(modes), len(weights)
    node.refuse_unless(len(targets) == leaves and len(splits) == count, "its lists differ in length")
    node.refuse_unless(bool((modes < len(CODES)).all()), f"mode {modes.max(initial=0)}")
    sides = []
    for side in ("true", "false"):
        ids, is_leaf = (
            np.asarray(_column(node, f"nodes_{side}nodeids", count)),
            np.asarray(_column(node, f"nodes_{side}leafs", count), bool),
        )
        within = (ids >= 0) & (ids < np.where(is_leaf, leaves, count))
        sides.append([*np.where(within, ids + count * is_leaf, -1).tolist(), *[-1] * leaves])
    missing = [*(node.attr("nodes_missing_value_tracks_true") or (0,) * count)]
    node.refuse_unless(len(missing) == count, "its lists differ in length")
    none = [0] * leaves
    codes = [CODES[m] for m in modes]
    features = [*_column(node, "nodes_featureids", count), *none]
    nodes = Nodes(
        features,
        codes + none,
        [*splits.tolist(), *none],
        missing + none,
        sides[0],
        sides[1],
        [False] * count + [True] * leaves,
        _members(node, codes),
    )
    ranges = [(0, 0)] * count + [(i, i + 1) for i in range(leaves)]
    outputs, (aggregate, name) = int(node.attr("n_targets") or 0), _chosen(node)
    double = np.float64 in (splits.dtype, weights.dtype)
    result = (outputs, aggregate, np.zeros(0), double)
    scores = ensemble(node, (nodes, node.attr("tree_roots") or (), ranges), (targets, weights), result)
    made = of_one_target(node, scores, name) if outputs == 1 else transformed(node, scores, name)
    return (
        [made]
        if node.builder.tensors[made].dtype is node.dtype(0)
        else node.done("Cast", [made], {"to": node.dtype(0).value})
    )


def _chosen(node: OnnxNode) -> tuple[str, str]:
    """The aggregate function and the transform by their codes."""
    found = []
    for attr, words in (("aggregate_function", AGGREGATES), ("post_transform", TRANSFORMS)):
        code = int(node.attr(attr))
        node.refuse_unless(0 <= code < len(words), f"{attr} {code}")
        found.append(words[code])
    return found[0], found[1]


def _members(node: OnnxNode, codes: Sequence[int]) -> dict[int, Sequence[float]]:
    """What each MEMBER node asks for: the lists in membership_values, in order, each ended by a NaN."""
    wanting = [place for place, code in enumerate(codes) if code == MEMBER]
    tensor = node.attr("membership_values")
    values = node.importer.source.array(tensor).reshape(-1) if tensor is not None else np.zeros(0)
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    lists = [[v for v in part.tolist() if not np.isnan(v)] for part in parts if len(part)]
    node.refuse_unless(
        len(lists) == len(wanting), f"{len(lists)} sets for {len(wanting)} nodes that ask for members"
    )
    return dict(zip(wanting, lists, strict=True))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "ai.onnx.ml::TreeEnsemble": _ensemble,
        "ai.onnx.ml::TreeEnsembleClassifier": _classifier,
        "ai.onnx.ml::TreeEnsembleRegressor": _regressor,
    }
)
