"""LinearClassifier, LinearRegressor, SVMClassifier and SVMRegressor of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import (
    apply_post_transform,
    as_float,
    complete_two_classes,
    emit_best_class,
    emit_label,
    emit_second_class_if,
    float_list,
    input_matrix,
    read_labels,
    transform_single_score,
)

MIN_PROBABILITY = 1e-7
"""How near the probability of a pair comes to 0 or 1: LIBSVM's bound, which keeps the coupling finite."""

Pair = tuple[int, int]
"""Two classes by their indices, the lower one first."""


def _products(node: OnnxNode, rows: int) -> str:
    """Return x times the coefficients of each class or target, plus the intercepts."""
    x = as_float(node, input_matrix(node))
    features = node.builder.shape(x)[1]
    matrix = float_list(node, "coefficients", (rows * features,)).reshape(rows, features).T
    product = node.emit("MatMul", [x, node.add_constant(matrix, tag="coefficients")], tag="product")
    if not node.attr("intercepts"):
        return product
    intercepts = node.add_constant(float_list(node, "intercepts", (rows,)), tag="intercepts")
    return node.emit("Add", [product, intercepts], tag="scores")


def _linear_classifier(node: OnnxNode) -> Sequence[Result]:
    labels, transform = read_labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    count = len(node.attr("intercepts") or labels.numbers or labels.strings)
    scores = _products(node, count)
    if count == 1 and len(labels) == 2:
        # ONNX Runtime compares the score with 0 before the transform, also for LOGISTIC.
        is_positive = node.emit("Greater", [scores, node.add_float(0, "zero")], tag="positive")
        label = emit_label(node, emit_second_class_if(node, is_positive), labels)
        return [label, complete_two_classes(node, scores, transform, complement=True)]
    node.refuse_unless(count == len(labels) > 1, f"{len(labels)} labels for {count} scores")
    label = emit_label(node, emit_best_class(node, scores), labels)
    return [label, apply_post_transform(node, scores, transform)]


def _linear_regressor(node: OnnxNode) -> Sequence[Result]:
    targets, transform = int(node.attr("targets")), str(node.attr("post_transform"))
    scores = _products(node, targets)
    if targets == 1:
        return [transform_single_score(node, scores, transform)]
    return [apply_post_transform(node, scores, transform)]


def _kernel(node: OnnxNode, vectors: Array) -> str:
    """Return the kernel of each row and each support vector, [N, vectors].

    RBF: exp(-gamma |x - v|²); POLY: (gamma x v + coef0) ** degree; SIGMOID: tanh(gamma x v + coef0); LINEAR:
    x v.
    """
    kind, x = str(node.attr("kernel_type")), as_float(node, input_matrix(node))
    if kind == "LINEAR":
        return node.emit("MatMul", [x, node.add_constant(vectors.T, tag="vectors")], tag="product")
    gamma, coef0, degree = map(float, float_list(node, "kernel_params", (3,)))
    if kind == "RBF":
        # One op of its own: |x|² - 2 x v + |v|² would lose the digits of close vectors.
        distance = node.emit(
            "SquaredDistance", [x, node.add_constant(vectors, tag="vectors")], tag="distance"
        )
        exponent = node.emit("Mul", [distance, node.add_float(-gamma, "gamma")], tag="scaled")
        return node.emit("Exp", [exponent], tag="kernel")
    product = node.emit("MatMul", [x, node.add_constant(vectors.T, tag="vectors")], tag="product")
    problem = f"kernel type {kind!r}; known are LINEAR, POLY, RBF, SIGMOID"
    node.refuse_unless(kind in ("POLY", "SIGMOID"), problem)
    scaled = node.emit("Mul", [product, node.add_float(gamma, "gamma")], tag="scaled")
    moved = node.emit("Add", [scaled, node.add_float(coef0, "coef0")], tag="moved")
    if kind == "SIGMOID":
        return node.emit("Tanh", [moved], tag="kernel")
    return node.emit("Pow", [moved, node.add_float(degree, "degree")], tag="kernel")


def _support_vectors(node: OnnxNode, count: int) -> Array:
    """Return the support vectors, [count, features]."""
    features = node.shape(0)[-1]
    return float_list(node, "support_vectors", (count * features,)).reshape(count, features)


def _svm_regressor(node: OnnxNode) -> Sequence[Result]:
    transform, count = str(node.attr("post_transform")), int(node.attr("n_supports"))
    problem = f"post_transform {transform}, which ONNX Runtime leaves out"
    node.refuse_unless(transform == "NONE", f"{problem}; export it with NONE and a node behind it")
    rho = float_list(node, "rho", (1,))
    # SVMRegressor: without support vectors it is a linear model, and `coefficients` has one number per
    # feature.
    if count:
        values = _kernel(node, _support_vectors(node, count))
        weights = float_list(node, "coefficients", (count,))
    else:
        values = as_float(node, input_matrix(node))
        weights = float_list(node, "coefficients", (node.shape(0)[-1],))
    column = node.add_constant(weights.reshape(-1, 1), tag="coefficients")
    terms = [node.emit("MatMul", [values, column], tag="sum"), node.add_float(rho[0], "rho")]
    if not node.attr("one_class"):
        return node.done("Add", terms)
    decision = node.emit("Add", terms, tag="decision")
    inside = node.emit("Greater", [decision, node.add_float(0, "zero")], tag="inside")
    signs = [node.add_float(np.full((1, 1), value), tag) for value, tag in ((1, "in"), (-1, "out"))]
    return node.done("Where", [inside, *signs])


def _svm_classifier(node: OnnxNode) -> Sequence[Result]:
    """Compute one decision for each pair of classes; the label is the class with most votes.

    C.-C. Chang, C.-J. Lin, "LIBSVM", ACM TIST 2 (2011).
    """
    labels, transform = read_labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    sizes = tuple(node.attr("vectors_per_class") or ())
    if not sizes:
        return _linear_svm(node)
    node.refuse_unless(
        len(sizes) == len(labels) > 1 and min(sizes) >= 0,
        f"{len(labels)} labels, vectors of {len(sizes)} classes",
    )
    pairs = list(combinations(range(len(sizes)), 2))
    rho = node.add_constant(float_list(node, "rho", (len(pairs),)), tag="rho")
    values = _kernel(node, _support_vectors(node, sum(sizes)))
    weights = node.add_constant(_pair_weights(node, sizes, pairs), tag="coefficients")
    product = node.emit("MatMul", [values, weights], tag="sums")
    decisions = node.emit("Add", [product, rho], tag="decisions")
    # The label comes from the votes even where there are probabilities: so do LIBSVM and ONNX Runtime.
    label = emit_label(node, emit_best_class(node, _votes(node, decisions, len(sizes))), labels)
    if node.attr("prob_a"):
        probabilities = _probabilities(node, decisions, len(labels))
        return [label, apply_post_transform(node, probabilities, transform)]
    if len(labels) == 2:
        complement = transform in ("SOFTMAX", "SOFTMAX_ZERO")
        return [label, complete_two_classes(node, decisions, transform, complement)]
    return [label, apply_post_transform(node, decisions, transform)]


def _linear_svm(node: OnnxNode) -> Sequence[Result]:
    """Compute a decision for each class without support vectors, all with the first rho as ONNX Runtime."""
    labels, transform = read_labels(node, "classlabels_ints"), str(node.attr("post_transform"))
    count = len(labels)
    if count < 3 or node.attr("prob_a"):
        problem = "a linear SVM without support vectors, of two classes or with probabilities"
        raise RefusedError(f"{problem}; export it as LinearClassifier")
    x = as_float(node, input_matrix(node))
    features = node.builder.shape(x)[1]
    weights = float_list(node, "coefficients", (count * features,)).reshape(count, features)
    rho = node.attr("rho") or (0.0,)
    product = node.emit("MatMul", [x, node.add_constant(weights.T, tag="coefficients")], tag="product")
    scores = node.emit("Add", [product, node.add_float(rho[0], "rho")], tag="decisions")
    label = emit_label(node, emit_best_class(node, scores), labels)
    return [label, apply_post_transform(node, scores, transform)]


def _pair_weights(node: OnnxNode, sizes: Sequence[int], pairs: Sequence[Pair]) -> Array:
    """Return the weights of the support vectors in each pair's decision, [vectors, pairs]."""
    count = sum(sizes)
    rows = len(sizes) - 1
    coefficients = np.float32(float_list(node, "coefficients", (rows * count,))).reshape(rows, count)
    starts = np.cumsum((0, *sizes))
    weights = np.zeros((count, len(pairs)), np.float32)
    # LIBSVM's sv_coef: a vector of class i has a coefficient for each other class. They lie in the order of
    # the other classes, i itself left out, so that of j is in row j - 1 for i < j and in row j for i > j.
    for column, (i, j) in enumerate(pairs):
        weights[starts[i] : starts[i + 1], column] = coefficients[j - 1, starts[i] : starts[i + 1]]
        weights[starts[j] : starts[j + 1], column] = coefficients[i, starts[j] : starts[j + 1]]
    return weights


def _votes(node: OnnxNode, decisions: str, classes: int) -> str:
    """Return how many pairs each class wins; the second class wins where the decision is not positive."""
    pairs = list(combinations(range(classes), 2))
    first, second = np.zeros((2, len(pairs), classes), np.float32)
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1
    # A pair gives `first` if it is won and `second` else: second + won * (first - second), one matrix
    # product.
    is_won = node.emit("Greater", [decisions, node.add_float(0, "zero")], tag="wins")
    won = node.emit("Cast", [is_won], {"to": "f32"}, tag="won")
    difference = node.emit("MatMul", [won, node.add_constant(first - second, tag="votes")], tag="swings")
    return node.emit("Add", [difference, node.add_constant(second.sum(0), tag="losses")], tag="counted")


def _probabilities(node: OnnxNode, decisions: str, classes: int) -> str:
    """Return the probability of each class: Platt's 1 / (1 + exp(a d + b)) of each pair, coupled."""
    count = node.builder.shape(decisions)[1]
    a, b = (float_list(node, attr, (count,)) for attr in ("prob_a", "prob_b"))
    # As Sigmoid(-a d - b), which does not overflow for large decisions.
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
