"""What the classifiers and regressors of ai.onnx.ml share: labels, transforms of scores, operands as floats.

The formulas are those of ONNX Runtime (onnxruntime/core/providers/cpu/ml/ml_common.h), because the standard
leaves several cases open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.node import OnnxNode

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""In the order of their codes in TreeEnsemble."""

MIN_SCORE = 1e-7
"""The magnitude up to which SOFTMAX_ZERO takes a score for 0, as ONNX Runtime does."""

WINITZKI = 0.147
"""The constant of the approximation of the inverse error function.

S. Winitzki, "A handy approximation for the error function" (2008).
"""


@dataclass(frozen=True)
class Labels:
    """The names of a classifier's classes: either numbers or strings."""

    numbers: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return max(len(self.numbers), len(self.strings))


def read_labels(node: OnnxNode, numbers: str) -> Labels:
    """Return the labels of a classifier; numbers: the attribute that holds them where they are numbers."""
    labels = Labels(tuple(node.attr(numbers) or ()), tuple(node.attr("classlabels_strings") or ()))
    node.refuse_unless(
        bool(labels.numbers) != bool(labels.strings), "it needs labels, either numbers or strings"
    )
    return labels


def emit_label(node: OnnxNode, index: str, labels: Labels) -> str:
    """Return the label of each row from its index among the classes.

    For strings that is the index itself, and the importer notes which strings it stands for.
    """
    if labels.strings:
        node.importer.strings[index] = labels.strings
        return index
    if labels.numbers == tuple(range(len(labels))):
        return index
    table = node.add_constant(labels.numbers, DType.I64, "labels")
    return node.emit("Gather", [table, index], {"axis": 0}, tag="label")


def emit_best_class(node: OnnxNode, scores: str) -> str:
    """Return the index of the highest score of each row, of equal ones the first."""
    return node.emit("ArgMax", [scores], {"axis": 1, "keepdims": False}, tag="best")


def emit_second_class_if(node: OnnxNode, condition: str) -> str:
    """Return index 1 where a condition [N, 1] holds, else 0."""
    index = node.emit("Cast", [condition], {"to": DType.I64.value}, tag="chosen")
    return node.emit("Reshape", [index], {"shape": (node.builder.shape(condition)[0],)}, tag="best")


def input_matrix(node: OnnxNode) -> str:
    """Return input 0 as rows of features; a vector is one row."""
    shape = node.shape(0)
    node.refuse_unless(len(shape) in (1, 2), f"its input has shape {list(shape)}; it must be [N, features]")
    x = node.input(0)
    return x if len(shape) == 2 else node.emit("Reshape", [x], {"shape": (1, *shape)}, tag="row")


def as_float(node: OnnxNode, tensor: str, tag: str = "float") -> str:
    """Return a tensor in single precision, in which ONNX Runtime computes these operators."""
    if node.builder.tensors[tensor].dtype is DType.F32:
        return tensor
    return node.emit("Cast", [tensor], {"to": "f32"}, tag=tag)


def apply_post_transform(node: OnnxNode, scores: str, name: str) -> str:
    """Return scores [N, classes or targets] after a transform."""
    if name not in TRANSFORMS:
        raise RefusedError(f"its post_transform is {name!r}; known are {', '.join(TRANSFORMS)}")
    if name == "SOFTMAX":
        return node.emit("Softmax", [scores], {"axis": 1}, tag="softmax")
    if name == "LOGISTIC":
        return node.emit("Sigmoid", [scores], tag="logistic")
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(node, scores)
    return _probit(node, scores) if name == "PROBIT" else scores


def transform_single_score(node: OnnxNode, scores: str, name: str) -> str:
    """Return a score [N, 1] after a transform, which may be PROBIT or NONE."""
    # The standard applies the others to one score as well, ONNX Runtime leaves them out: whichever of the two
    # is followed, a user of the other would get wrong numbers.
    problem = f"post_transform {name} of a single target, which ONNX Runtime leaves out"
    node.refuse_unless(name in ("NONE", "PROBIT"), f"{problem}; export it with NONE and a node behind it")
    return apply_post_transform(node, scores, name)


def complete_two_classes(node: OnnxNode, score: str, name: str, complement: bool) -> str:
    """Return the scores of both classes from that of the second, [N, 1].

    [1 - s, s] if `complement` says that it is a probability, else [-s, s]; LOGISTIC is always of [-s, s].
    """
    problem = "post_transform PROBIT of two classes with one score"
    node.refuse_unless(name != "PROBIT", f"{problem}; ONNX Runtime gives no second column")
    if complement and name != "LOGISTIC":
        other = node.emit("Sub", [node.add_float(1, "one"), score], tag="other")
    else:
        other = node.emit("Neg", [score], tag="other")
    both = node.emit("Concat", [other, score], {"axis": 1}, tag="both")
    # ONNX Runtime applies no other transform to scores that it has completed.
    return apply_post_transform(node, both, name if name == "LOGISTIC" else "NONE")


def _add_number(node: OnnxNode, scores: str, value: float | Array, tag: str) -> str:
    """Return a constant in the precision of the scores, which is double where TreeEnsemble's numbers are."""
    return node.add_constant(value, node.builder.tensors[scores].dtype, tag)


def _softmax_zero(node: OnnxNode, scores: str) -> str:
    """Return the softmax in which scores of 0 do not count: they stay about 0 and are not in the sum."""
    highest = node.emit("ReduceMax", [scores], {"axes": (1,), "keepdims": True}, tag="highest")
    powers = node.emit("Exp", [node.emit("Sub", [scores, highest], tag="below")], tag="powers")
    size = node.emit("Abs", [scores], tag="size")
    counts = node.emit("Greater", [size, _add_number(node, scores, MIN_SCORE, "zero")], tag="counts")
    # ONNX Runtime gives a score s of about 0 the value s * exp(-highest), not 0.
    factor = node.emit("Exp", [node.emit("Neg", [highest], tag="negative")], tag="factor")
    rest = node.emit("Mul", [scores, factor], tag="rest")
    none = _add_number(node, scores, np.zeros((1, 1)), "none")
    counted = node.emit("Where", [counts, powers, none], tag="counted")
    total = node.emit("ReduceSum", [counted], {"axes": (1,), "keepdims": True}, tag="total")
    parts = node.emit("Where", [counts, powers, rest], tag="parts")
    return node.emit("Div", [parts, total], tag="softmax-zero")


def _probit(node: OnnxNode, scores: str) -> str:
    """Return the quantile of the normal distribution, sqrt(2) * erfinv(2 s - 1), by Winitzki's approximation.

    With x = 2 s - 1, l = log(1 - x²) and v = l / 2 + 2 / (pi a):
    erfinv(x) = sign(x) * sqrt(sqrt(v² - l / a) - v).
    """
    one = _add_number(node, scores, 1, "one")
    double = node.emit("Mul", [scores, _add_number(node, scores, 2, "two")], tag="double")
    x = node.emit("Sub", [double, one], tag="centered")
    square = node.emit("Mul", [x, x], tag="square")
    log = node.emit("Log", [node.emit("Sub", [one, square], tag="inner")], tag="log")
    half = node.emit("Mul", [log, _add_number(node, scores, 0.5, "half")], tag="half-log")
    v = node.emit("Add", [half, _add_number(node, scores, 2 / (pi * WINITZKI), "offset")], tag="v")
    v_square = node.emit("Mul", [v, v], tag="v2")
    quotient = node.emit("Mul", [log, _add_number(node, scores, 1 / WINITZKI, "a")], tag="part")
    inner = node.emit("Sub", [v_square, quotient], tag="d")
    difference = node.emit("Sub", [node.emit("Sqrt", [inner], tag="root"), v], tag="difference")
    magnitude = node.emit("Sqrt", [difference], tag="size")
    signed = node.emit("Mul", [magnitude, node.emit("Sign", [x], tag="sign")], tag="signed")
    return node.emit("Mul", [signed, _add_number(node, scores, sqrt(2), "sqrt2")], tag="probit")


def float_list(node: OnnxNode, attr: str, lengths: Sequence[int]) -> Array:
    """Return a list of floats in an attribute; RefusedError unless it has one of these lengths."""
    values = np.asarray(node.attr(attr) or (), np.float32)
    expected = " or ".join(map(str, lengths))
    node.refuse_unless(len(values) in lengths, f"its {attr} are {len(values)}; expected {expected}")
    return values
