"""What the classifiers and regressors of ai.onnx.ml share: labels, transforms of scores, operands as floats.

The formulas are those of ONNX Runtime (onnxruntime/core/providers/cpu/ml/ml_common.h), which fills what the
standard leaves open.
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

NO_ZERO = 1e-7
"""What SOFTMAX_ZERO takes for 0."""

WINITZKI = 0.147
"""The constant of the approximation of the inverse error function: S.

Winitzki, "A handy approximation for the error function" (2008).
"""


@dataclass(frozen=True)
class Labels:
    """What the classes of a classifier are called: by numbers or by texts."""

    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return max(len(self.numbers), len(self.texts))


def labels(node: OnnxNode, numbers: str) -> Labels:
    """The labels of a classifier; numbers: the attribute that holds them where they are numbers."""
    found = Labels(tuple(node.attr(numbers) or ()), tuple(node.attr("classlabels_strings") or ()))
    node.refuse_unless(bool(found.numbers) != bool(found.texts), "it needs labels, either numbers or texts")
    return found


def labelled(node: OnnxNode, index: str, names: Labels) -> str:
    """The label of each row by its index among the classes.

    For texts the index itself, of which the graph knows the texts.
    """
    if names.texts:
        node.importer.texts[index] = names.texts
        return index
    if names.numbers == tuple(range(len(names))):
        return index
    return node.emit(
        "Gather", [node.add_constant(names.numbers, DType.I64, "labels"), index], {"axis": 0}, tag="label"
    )


def best(node: OnnxNode, scores: str) -> str:
    """The index of the highest score of each row, of equal ones the first."""
    return node.emit("ArgMax", [scores], {"axis": 1, "keepdims": False}, tag="best")


def second_if(node: OnnxNode, condition: str) -> str:
    """Index 1 where a condition [N, 1] holds, else 0."""
    index = node.emit("Cast", [condition], {"to": DType.I64.value}, tag="chosen")
    return node.emit("Reshape", [index], {"shape": (node.builder.shape(condition)[0],)}, tag="best")


def matrix(node: OnnxNode) -> str:
    """Input 0 as rows of features; a vector is one row."""
    shape = node.shape(0)
    node.refuse_unless(len(shape) in (1, 2), f"its input has shape {list(shape)}; it must be [N, features]")
    x = node.input(0)
    return x if len(shape) == 2 else node.emit("Reshape", [x], {"shape": (1, *shape)}, tag="row")


def as_float(node: OnnxNode, tensor: str, tag: str = "float") -> str:
    """A tensor in single precision, in which ONNX Runtime computes these operators."""
    return (
        tensor
        if node.builder.tensors[tensor].dtype is DType.F32
        else node.emit("Cast", [tensor], {"to": "f32"}, tag=tag)
    )


def number(node: OnnxNode, value: float, tag: str) -> str:
    """A constant in single precision."""
    return node.add_constant(value, DType.F32, tag)


def transformed(node: OnnxNode, scores: str, name: str) -> str:
    """Scores [N, several] after a transform."""
    if name not in TRANSFORMS:
        raise RefusedError(f"its post_transform is {name!r}; known are {', '.join(TRANSFORMS)}")
    if name == "SOFTMAX":
        return node.emit("Softmax", [scores], {"axis": 1}, tag="softmax")
    if name == "LOGISTIC":
        return node.emit("Sigmoid", [scores], tag="logistic")
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(node, scores)
    return _probit(node, scores) if name == "PROBIT" else scores


def of_one_target(node: OnnxNode, scores: str, name: str) -> str:
    """A score [N, 1] after a transform: a probit, or nothing.

    Others are refused: the standard applies them, ONNX Runtime does not.
    """
    text = f"post_transform {name} of a single target, which ONNX Runtime leaves out; export it with NONE and a node behind it"
    node.refuse_unless(name in ("NONE", "PROBIT"), text)
    return transformed(node, scores, name)


def of_one_class(node: OnnxNode, score: str, name: str, complement: bool) -> str:
    """Scores of both classes from that of the second: [1 - s, s] if it is a probability, else [-s, s].

    Or logistic of [-s, s].
    """
    node.refuse_unless(
        name != "PROBIT",
        "post_transform PROBIT of two classes with one score; ONNX Runtime gives no second column",
    )
    if complement and name != "LOGISTIC":
        other = node.emit("Sub", [number(node, 1, "one"), score], tag="other")
    else:
        other = node.emit("Neg", [score], tag="other")
    both = node.emit("Concat", [other, score], {"axis": 1}, tag="both")
    return transformed(node, both, name if name == "LOGISTIC" else "NONE")


def _softmax_zero(node: OnnxNode, scores: str) -> str:
    """Softmax in which scores of 0 count nothing."""
    highest = node.emit("ReduceMax", [scores], {"axes": (1,), "keepdims": True}, tag="highest")
    powers = node.emit("Exp", [node.emit("Sub", [scores, highest], tag="below")], tag="powers")
    size = node.emit("Abs", [scores], tag="size")
    counts = node.emit("Greater", [size, number(node, NO_ZERO, "zero")], tag="counts")
    least = node.emit("Exp", [node.emit("Neg", [highest], tag="negative")], tag="factor")
    rest = node.emit("Mul", [scores, least], tag="rest")
    none = node.add_constant(np.zeros((1, 1)), DType.F32, "none")
    total = node.emit(
        "ReduceSum",
        [node.emit("Where", [counts, powers, none], tag="counted")],
        {"axes": (1,), "keepdims": True},
        tag="total",
    )
    return node.emit(
        "Div", [node.emit("Where", [counts, powers, rest], tag="parts"), total], tag="softmax-zero"
    )


def _probit(node: OnnxNode, scores: str) -> str:
    """The quantile of the normal distribution, sqrt(2) * erfinv(2 s - 1), by Winitzki's approximation."""
    x = node.emit(
        "Sub",
        [node.emit("Mul", [scores, number(node, 2, "two")], tag="double"), number(node, 1, "one")],
        tag="centered",
    )
    square = node.emit("Mul", [x, x], tag="square")
    log = node.emit("Log", [node.emit("Sub", [number(node, 1, "one"), square], tag="inner")], tag="log")
    half = node.emit("Mul", [log, number(node, 0.5, "half")], tag="half-log")
    v = node.emit("Add", [half, number(node, 2 / (pi * WINITZKI), "offset")], tag="v")
    inner = node.emit(
        "Sub",
        [
            node.emit("Mul", [v, v], tag="v2"),
            node.emit("Mul", [log, number(node, 1 / WINITZKI, "a")], tag="part"),
        ],
        tag="d",
    )
    root = node.emit(
        "Sqrt", [node.emit("Sub", [node.emit("Sqrt", [inner], tag="root"), v], tag="difference")], tag="size"
    )
    signed = node.emit("Mul", [root, node.emit("Sign", [x], tag="sign")], tag="signed")
    return node.emit("Mul", [signed, number(node, sqrt(2), "sqrt2")], tag="probit")


def of_size(node: OnnxNode, attr: str, sizes: Sequence[int]) -> Array:
    """A list of floats in an attribute, which must be one of these long."""
    found = np.asarray(node.attr(attr) or (), np.float32)
    node.refuse_unless(
        len(found) in sizes, f"its {attr} are {len(found)}; expected {' or '.join(map(str, sizes))}"
    )
    return found
