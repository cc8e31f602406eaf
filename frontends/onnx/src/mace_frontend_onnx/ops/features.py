"""Operators of ai.onnx.ml on single features: scaling, imputing, encoding, and the labels of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import as_float, float_list, input_matrix

MAX_LISTED_CLASSES = 20
"""How many classes the note about a ZipMap lists."""


def _scaler(node: OnnxNode) -> Sequence[Result]:
    """Compute (x - offset) * scale."""
    features = node.shape(0)[-1]
    offset, scale = (float_list(node, attr, (1, features)) for attr in ("offset", "scale"))
    # Scaler: the result is single precision, but ONNX Runtime computes in double where x is double.
    dtype = DType.F64 if node.dtype(0) is DType.F64 else DType.F32
    x = node.input(0) if dtype is DType.F64 else as_float(node, node.input(0))
    moved = node.emit("Sub", [x, node.add_constant(offset, dtype, "offset")], tag="moved")
    factors = [moved, node.add_constant(scale, dtype, "scale")]
    if dtype is DType.F32:
        return node.done("Mul", factors)
    return node.done("Cast", [node.emit("Mul", factors, tag="scaled")], {"to": DType.F32.value})


def _normalizer(node: OnnxNode) -> Sequence[Result]:
    """Divide rows by their maximum, sum of magnitudes, or length."""
    x = as_float(node, input_matrix(node))
    # MAX is the largest element, not the largest magnitude: Y = X / max(X) on the page of Normalizer.
    norms = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    name = str(node.attr("norm"))
    node.refuse_unless(name in norms, f"norm {name!r}; known are {', '.join(norms)}")
    norm = node.emit(norms[name], [x], {"axes": (1,), "keepdims": True}, tag="norm")
    # ONNX Runtime leaves a row of norm 0 as it is instead of dividing by 0.
    empty = node.emit("Equal", [norm, node.add_float(np.zeros((1, 1)), "zero")], tag="empty")
    divisor = node.emit("Where", [empty, node.add_float(np.ones((1, 1)), "one"), norm], tag="divisor")
    if len(node.shape(0)) == 2:
        return node.done("Div", [x, divisor])
    row = node.emit("Div", [x, divisor], tag="row")
    return node.done("Reshape", [row], {"shape": node.shape(0)})


def _imputer(node: OnnxNode) -> Sequence[Result]:
    is_float = node.dtype(0).is_float
    kind = "float" if is_float else "int64"
    values = tuple(node.attr(f"imputed_value_{kind}s") or ())
    features = node.shape(0)[-1]
    problem = f"its imputed values are {len(values)}; expected 1 or {features}"
    node.refuse_unless(len(values) in (1, features), problem)
    replaced, x, dtype = node.attr(f"replaced_value_{kind}"), node.input(0), node.dtype(0)
    # NaN equals nothing, itself included.
    if is_float and np.isnan(replaced):
        missing = node.emit("IsNaN", [x], tag="missing")
    else:
        missing = node.emit("Equal", [x, node.add_constant(replaced, dtype, "replaced")], tag="missing")
    return node.done("Where", [missing, node.add_constant(values, dtype, "imputed"), x])


def _binarizer(node: OnnxNode) -> Sequence[Result]:
    dtype = node.dtype(0)
    # The attribute is single precision; in a model of doubles it is compared as that rounded number.
    threshold = float(np.float32(node.attr("threshold")))
    limit = node.add_constant(threshold, dtype if dtype.is_float else DType.F32, "threshold")
    x = node.input(0) if dtype.is_float else as_float(node, node.input(0))
    return node.done("Cast", [node.emit("Greater", [x, limit], tag="above")], {"to": dtype.value})


def _one_hot(node: OnnxNode) -> Sequence[Result]:
    """Return a row for each element, with a 1 where its category stands."""
    x = node.input(0)
    strings = node.importer.strings.get(x)
    if strings is not None:
        return _one_hot_of_strings(node, strings)
    numbers = node.attr("cats_int64s")
    node.refuse_unless(bool(numbers), "its categories are text, its input is not")
    _refuse_duplicates(node, numbers)
    if not node.attr("zeros"):
        # A library cannot stop with an error in the middle of a run.
        text = "an unknown category gives zeros; ONNX Runtime stops there, as zeros=0 asks for"
        node.builder.notes.append(f"node {node.name!r} ({node.op}): {text}")
    if node.dtype(0) is not DType.I64:
        # ONNX Runtime cuts floats to integers before it compares them with the categories.
        x = node.emit("Cast", [x], {"to": DType.I64.value}, tag="whole")
    column = node.emit("Reshape", [x], {"shape": (*node.shape(0), 1)}, tag="column")
    equal = node.emit("Equal", [column, node.add_constant(numbers, DType.I64, "categories")], tag="equal")
    return node.done("Cast", [equal], {"to": DType.F32.value})


def _refuse_duplicates(node: OnnxNode, categories: Sequence[int | str]) -> None:
    # The standard does not say which of two columns gets the 1; ONNX Runtime gives it to the last alone.
    node.refuse_unless(len({*categories}) == len(categories), "two of its categories are the same")


def _one_hot_of_strings(node: OnnxNode, strings: Sequence[str]) -> Sequence[Result]:
    """Return the rows of indices of strings: each string has its row in a table."""
    categories = [str(category) for category in node.attr("cats_strings") or ()]
    node.refuse_unless(bool(categories), "its input is text, its categories are not")
    _refuse_duplicates(node, categories)
    rows = [[string == category for category in categories] for string in strings]
    table = node.add_constant(np.array(rows, np.float32), tag="table")
    return node.done("Gather", [table, node.input(0)], {"axis": 0})


def _feature_vectorizer(node: OnnxNode) -> Sequence[Result]:
    sizes = tuple(node.attr("inputdimensions") or ())
    parts = []
    for index, tensor in enumerate(node.inputs()):
        shape = node.shape(index)
        row = (1, *shape) if len(shape) == 1 else (shape[0], prod(shape[1:]))
        stated = sizes[index] if index < len(sizes) else row[1]
        problem = f"inputdimensions says {stated} for input {index}, which has {row[1]} features"
        node.refuse_unless(stated == row[1], problem)
        flat = tensor if shape == row else node.emit("Reshape", [tensor], {"shape": row}, tag=f"row{index}")
        parts.append(as_float(node, flat, f"float{index}"))
    return node.done("Concat", parts, {"axis": 1})


def _array_feature_extractor(node: OnnxNode) -> Sequence[Result]:
    """Return the features at given indices of the last axis; of a vector as one row."""
    count = prod(node.shape(1))
    strings = node.constant_strings(0)
    size = len(strings) if strings else node.shape(0)[-1]
    chosen = node.array(1)
    is_valid = chosen is None or bool(((chosen >= 0) & (chosen < size)).all())
    node.refuse_unless(is_valid, f"an index is none of {size}")
    indices = node.emit("Reshape", [node.input(1)], {"shape": (count,)}, tag="flat")
    if strings:
        # Elements of a list of strings are represented by their indices in it, which are the node's own
        # input.
        index = node.emit("Reshape", [indices], {"shape": (1, count)}, tag="index")
        node.importer.strings[index] = strings
        return [index]
    shape = node.shape(0)
    if len(shape) > 1:
        return node.done("Gather", [node.input(0), indices], {"axis": len(shape) - 1})
    picked = node.emit("Gather", [node.input(0), indices], {"axis": 0}, tag="picked")
    return node.done("Reshape", [picked], {"shape": (1, count)})


def _zip_map(node: OnnxNode) -> Sequence[Result]:
    """Return the probabilities themselves: a library has no maps."""
    names = node.attr("classlabels_strings") or node.attr("classlabels_int64s") or ()
    order = ", ".join(map(str, names[:MAX_LISTED_CLASSES]))
    if len(names) > MAX_LISTED_CLASSES:
        order += ", ..."
    text = f"is a tensor with a column for each class ({order}) in the place of a list of maps"
    node.builder.notes.append(f"{node.importer.location}: output {node.proto.output[0]!r} {text}")
    return [node.input(0)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "ai.onnx.ml::ArrayFeatureExtractor": _array_feature_extractor,
        "ai.onnx.ml::Binarizer": _binarizer,
        "ai.onnx.ml::FeatureVectorizer": _feature_vectorizer,
        "ai.onnx.ml::Imputer": _imputer,
        "ai.onnx.ml::Normalizer": _normalizer,
        "ai.onnx.ml::OneHotEncoder": _one_hot,
        "ai.onnx.ml::Scaler": _scaler,
        "ai.onnx.ml::ZipMap": _zip_map,
    }
)
