"""LinearClassifier, LinearRegressor, SVMClassifier and SVMRegressor of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import (
    as_float,
    best,
    labelled,
    labels,
    matrix,
    number,
    of_one_class,
    of_one_target,
    of_size,
    second_if,
    transformed,
)

MIN_PROBABILITY = 1e-7
"""Of a pair: what keeps the coupling of pairs from dividing by 0, as LIBSVM has it."""


def _products(node: OnnxNode, rows: int) -> str:
    """Return x times the coefficients of each class or target, plus the intercepts."""
    x = as_float(node, matrix(node))
    features = node.builder.shape(x)[1]
    coefficients = of_size(node, "coefficients", (rows * features,))
    product = node.emit(
        "MatMul",
        [x, node.add_constant(coefficients.reshape(rows, features).T, tag="coefficients")],
        tag="product",
    )
    if not node.attr("intercepts"):
        return product
    return node.emit(
        "Add",
        [product, node.add_constant(of_size(node, "intercepts", (rows,)), tag="intercepts")],
        tag="scores",
    )


def _linear_classifier(node: OnnxNode) -> Sequence[Held]:
    names, name = labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    count = len(node.attr("intercepts") or names.numbers or names.texts)
    scores = _products(node, count)
    if count == 1 and len(names) == 2:
        label = second_if(node, node.emit("Greater", [scores, number(node, 0, "zero")], tag="positive"))
        return [labelled(node, label, names), of_one_class(node, scores, name, complement=True)]
    node.refuse_unless(count == len(names) > 1, f"{len(names)} labels for {count} scores")
    return [labelled(node, best(node, scores), names), transformed(node, scores, name)]


def _linear_regressor(node: OnnxNode) -> Sequence[Held]:
    targets, name = int(node.attr("targets")), str(node.attr("post_transform"))
    scores = _products(node, targets)
    return [of_one_target(node, scores, name) if targets == 1 else transformed(node, scores, name)]


def _kernel(node: OnnxNode, vectors: Array) -> str:
    """The kernel of each row and each support vector, [N, vectors]. kernel_params: gamma, coef0, degree."""
    kind, x = str(node.attr("kernel_type")), as_float(node, matrix(node))
    gamma, coef0, degree = map(float, of_size(node, "kernel_params", (3,)) if kind != "LINEAR" else (1, 0, 1))
    if kind == "RBF":
        distance = node.emit(
            "SquaredDistance", [x, node.add_constant(vectors, tag="vectors")], tag="distance"
        )
        return node.emit(
            "Exp", [node.emit("Mul", [distance, number(node, -gamma, "gamma")], tag="scaled")], tag="kernel"
        )
    product = node.emit("MatMul", [x, node.add_constant(vectors.T, tag="vectors")], tag="product")
    if kind == "LINEAR":
        return product
    node.refuse_unless(
        kind in ("POLY", "SIGMOID"), f"kernel type {kind!r}; known are LINEAR, POLY, RBF, SIGMOID"
    )
    scaled = node.emit("Mul", [product, number(node, gamma, "gamma")], tag="scaled")
    moved = node.emit("Add", [scaled, number(node, coef0, "coef0")], tag="moved")
    if kind == "SIGMOID":
        return node.emit("Tanh", [moved], tag="kernel")
    return node.emit("Pow", [moved, number(node, degree, "degree")], tag="kernel")


def _vectors(node: OnnxNode, count: int) -> Array:
    """The support vectors, one a row."""
    features = node.shape(0)[-1]
    return of_size(node, "support_vectors", (count * features,)).reshape(count, features)


def _svm_regressor(node: OnnxNode) -> Sequence[Held]:
    name, count = str(node.attr("post_transform")), int(node.attr("n_supports"))
    node.refuse_unless(
        name == "NONE",
        f"post_transform {name}, which ONNX Runtime leaves out; export it with NONE and a node behind it",
    )
    rho = of_size(node, "rho", (1,))
    if count:
        values = _kernel(node, _vectors(node, count))
        weights = of_size(node, "coefficients", (count,))
    else:
        values = as_float(node, matrix(node))
        weights = of_size(node, "coefficients", (node.shape(0)[-1],))
    product = node.emit(
        "MatMul", [values, node.add_constant(weights.reshape(-1, 1), tag="coefficients")], tag="sum"
    )
    total = [product, number(node, rho[0], "rho")]
    if not node.attr("one_class"):
        return node.done("Add", total)
    inside = node.emit(
        "Greater", [node.emit("Add", total, tag="decision"), number(node, 0, "zero")], tag="inside"
    )
    ends = [
        node.add_constant(np.full((1, 1), value), DType.F32, tag) for value, tag in ((1, "in"), (-1, "out"))
    ]
    return node.done("Where", [inside, *ends])


def _svm_classifier(node: OnnxNode) -> Sequence[Held]:
    """One decision for each pair of classes (C.-C. Chang, C.-J. Lin, "LIBSVM", ACM TIST 2 (2011)).

    The label is that of most votes.
    """
    names, name = labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    sizes = tuple(node.attr("vectors_per_class") or ())
    if not sizes:
        return _linear_svm(node, len(names))
    node.refuse_unless(
        len(sizes) == len(names) > 1 and min(sizes) >= 0,
        f"{len(names)} labels, vectors of {len(sizes)} classes",
    )
    pairs = list(combinations(range(len(sizes)), 2))
    rho = of_size(node, "rho", (len(pairs),))
    values = _kernel(node, _vectors(node, sum(sizes)))
    product = node.emit(
        "MatMul",
        [values, node.add_constant(_pair_weights(node, sizes, pairs), tag="coefficients")],
        tag="sums",
    )
    decisions = node.emit("Add", [product, node.add_constant(rho, tag="rho")], tag="decisions")
    label = labelled(node, best(node, _votes(node, decisions, pairs)), names)
    if node.attr("prob_a"):
        return [label, transformed(node, _probabilities(node, decisions, len(names)), name)]
    if len(names) == 2:
        return [label, of_one_class(node, decisions, name, complement=name in ("SOFTMAX", "SOFTMAX_ZERO"))]
    return [label, transformed(node, decisions, name)]


def _linear_svm(node: OnnxNode, count: int) -> Sequence[Held]:
    """A decision for each class, all with the first rho, as ONNX Runtime computes it."""
    names, name = labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    text = "a linear SVM without support vectors"
    if count < 3 or node.attr("prob_a"):
        raise RefusedError(f"{text}, of two classes or with probabilities; export it as LinearClassifier")
    x = as_float(node, matrix(node))
    features = node.builder.shape(x)[1]
    weights = of_size(node, "coefficients", (count * features,)).reshape(count, features)
    rho = node.attr("rho") or (0.0,)
    product = node.emit("MatMul", [x, node.add_constant(weights.T, tag="coefficients")], tag="product")
    scores = node.emit("Add", [product, number(node, rho[0], "rho")], tag="decisions")
    return [labelled(node, best(node, scores), names), transformed(node, scores, name)]


def _pair_weights(node: OnnxNode, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """The coefficients [vectors, pairs]: in a pair the vectors of both classes count, each by the file's row that belongs to the other."""
    count = sum(sizes)
    given = np.float32(of_size(node, "coefficients", ((len(sizes) - 1) * count,))).reshape(
        len(sizes) - 1, count
    )
    ends = np.cumsum((0, *sizes))
    weights = np.zeros((count, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        weights[ends[i] : ends[i + 1], column] = given[j - 1, ends[i] : ends[i + 1]]
        weights[ends[j] : ends[j + 1], column] = given[i, ends[j] : ends[j + 1]]
    return weights


def _votes(node: OnnxNode, decisions: str, pairs: Sequence[tuple[int, int]]) -> str:
    """How many pairs each class wins: its second class wins where the decision is not positive."""
    classes = pairs[-1][1] + 1
    first, second = np.zeros((2, len(pairs), classes), np.float32)
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1
    wins = node.emit("Greater", [decisions, number(node, 0, "zero")], tag="wins")
    won = node.emit("Cast", [wins], {"to": "f32"}, tag="won")
    difference = node.emit("MatMul", [won, node.add_constant(first - second, tag="votes")], tag="swings")
    return node.emit("Add", [difference, node.add_constant(second.sum(0), tag="losses")], tag="counted")


def _probabilities(node: OnnxNode, decisions: str, classes: int) -> str:
    """Platt's 1 / (1 + exp(a d + b)) of each pair, kept off 0 and 1, coupled."""
    count = node.builder.shape(decisions)[1]
    a, b = (of_size(node, attr, (count,)) for attr in ("prob_a", "prob_b"))
    scaled = node.emit("Mul", [decisions, node.add_constant(-a, tag="a")], tag="platt-scaled")
    moved = node.emit("Sub", [scaled, node.add_constant(b, tag="b")], tag="platt-moved")
    limits = {"min": MIN_PROBABILITY, "max": 1 - MIN_PROBABILITY}
    pairs = node.emit("Clip", [node.emit("Sigmoid", [moved], tag="platt")], limits, tag="pairs")
    return node.emit("PairwiseCoupling", [pairs], {"classes": classes}, tag="probabilities")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "ai.onnx.ml::LinearClassifier": _linear_classifier,
        "ai.onnx.ml::LinearRegressor": _linear_regressor,
        "ai.onnx.ml::SVMClassifier": _svm_classifier,
        "ai.onnx.ml::SVMRegressor": _svm_regressor,
    }
)
