"""Operators of ai.onnx.ml on single features: scaling, imputing, encoding, and the labels of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.scores import as_float, matrix, of_size


def _scaler(node: OnnxNode) -> Sequence[Held]:
    """(x - offset) * scale, in double precision where x has it."""
    features = node.shape(0)[-1]
    offset, scale = (of_size(node, attr, (1, features)) for attr in ("offset", "scale"))
    dtype = DType.F64 if node.dtype(0) is DType.F64 else DType.F32
    x = node.input(0) if dtype is DType.F64 else as_float(node, node.input(0))
    moved = node.emit("Sub", [x, node.add_constant(offset, dtype, "offset")], tag="moved")
    made = [moved, node.add_constant(scale, dtype, "scale")]
    if dtype is DType.F32:
        return node.done("Mul", made)
    return node.done("Cast", [node.emit("Mul", made, tag="scaled")], {"to": DType.F32.value})


def _normalizer(node: OnnxNode) -> Sequence[Held]:
    """Rows divided by their greatest element (not magnitude, as ONNX has it), sum of magnitudes, or length.

    A norm of 0 divides by 1.
    """
    x = as_float(node, matrix(node))
    norms = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    name = str(node.attr("norm"))
    node.refuse_unless(name in norms, f"norm {name!r}; known are {', '.join(norms)}")
    norm = node.emit(norms[name], [x], {"axes": (1,), "keepdims": True}, tag="norm")
    empty = node.emit("Equal", [norm, node.add_constant(np.zeros((1, 1)), DType.F32, "zero")], tag="empty")
    divisor = node.emit(
        "Where", [empty, node.add_constant(np.ones((1, 1)), DType.F32, "one"), norm], tag="divisor"
    )
    return node.done("Div", [x, divisor])


def _imputer(node: OnnxNode) -> Sequence[Held]:
    is_float = node.dtype(0).is_float
    kind = "float" if is_float else "int64"
    values = tuple(node.attr(f"imputed_value_{kind}s") or ())
    sizes = (1, node.shape(0)[-1])
    node.refuse_unless(
        len(values) in sizes, f"its imputed values are {len(values)}; expected 1 or {sizes[1]}"
    )
    replaced, x, dtype = node.attr(f"replaced_value_{kind}"), node.input(0), node.dtype(0)
    if is_float and np.isnan(replaced):
        missing = node.emit("IsNaN", [x], tag="missing")
    else:
        missing = node.emit("Equal", [x, node.add_constant(replaced, dtype, "replaced")], tag="missing")
    return node.done("Where", [missing, node.add_constant(values, dtype, "imputed"), x])


def _binarizer(node: OnnxNode) -> Sequence[Held]:
    dtype = node.dtype(0)
    limit = node.add_constant(
        float(np.float32(node.attr("threshold"))), dtype if dtype.is_float else DType.F32, "threshold"
    )
    x = node.input(0) if dtype.is_float else as_float(node, node.input(0))
    return node.done("Cast", [node.emit("Greater", [x, limit], tag="above")], {"to": dtype.value})


def _one_hot(node: OnnxNode) -> Sequence[Held]:
    """For each element a row of a 1 where its category stands.

    Floats are cut to integers as ONNX Runtime does.
    """
    x = node.input(0)
    texts = node.importer.texts.get(x)
    if texts is not None:
        categories = [str(c) for c in node.attr("cats_strings") or ()]
        node.refuse_unless(bool(categories), "its input is text, its categories are not")
        table = np.array([[text == c for c in categories] for text in texts], np.float32)
        return node.done("Gather", [node.add_constant(table, tag="table"), x], {"axis": 0})
    numbers = node.attr("cats_int64s")
    node.refuse_unless(bool(numbers), "its categories are text, its input is not")
    if not node.attr("zeros"):
        place = f"node {node.name!r} ({node.op})"
        node.builder.notes.append(
            f"{place}: an unknown category gives zeros; ONNX Runtime stops there, as zeros=0 asks for"
        )
    whole = x if node.dtype(0) is DType.I64 else node.emit("Cast", [x], {"to": DType.I64.value}, tag="whole")
    column = node.emit("Reshape", [whole], {"shape": (*node.shape(0), 1)}, tag="column")
    equal = node.emit("Equal", [column, node.add_constant(numbers, DType.I64, "categories")], tag="equal")
    return node.done("Cast", [equal], {"to": DType.F32.value})


def _feature_vectorizer(node: OnnxNode) -> Sequence[Held]:
    sizes = tuple(node.attr("inputdimensions") or ())
    parts = []
    for index, tensor in enumerate(node.inputs()):
        shape = node.shape(index)
        row = (1, *shape) if len(shape) == 1 else (shape[0], prod(shape[1:]))
        wanted = sizes[index] if index < len(sizes) else row[1]
        node.refuse_unless(
            wanted == row[1], f"inputdimensions says {wanted} for input {index}, which has {row[1]} features"
        )
        flat = tensor if shape == row else node.emit("Reshape", [tensor], {"shape": row}, tag=f"row{index}")
        parts.append(as_float(node, flat, f"float{index}"))
    return node.done("Concat", parts, {"axis": 1})


def _array_feature_extractor(node: OnnxNode) -> Sequence[Held]:
    """The features at these indices; of a vector as one row."""
    count = prod(node.shape(1))
    text = node.texts_of_constant(0)
    size = len(text) if text else node.shape(0)[-1]
    given = node.array(1)
    node.refuse_unless(
        given is None or bool(((given >= 0) & (given < size)).all()), f"an index is none of {size}"
    )
    indices = node.emit("Reshape", [node.input(1)], {"shape": (count,)}, tag="flat")
    if text:
        index = node.emit("Reshape", [indices], {"shape": (1, count)}, tag="index")
        node.importer.texts[index] = text
        return [index]
    shape = node.shape(0)
    if len(shape) > 1:
        return node.done("Gather", [node.input(0), indices], {"axis": len(shape) - 1})
    picked = node.emit("Gather", [node.input(0), indices], {"axis": 0}, tag="picked")
    return node.done("Reshape", [picked], {"shape": (1, count)})


KEYS = ("keys_tensor", "keys_strings", "keys_int64s", "keys_floats")
VALUES = ("values_tensor", "values_strings", "values_int64s", "values_floats")
DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"values_strings": "default_string", "values_int64s": "default_int64", "values_floats": "default_float"}
)
FORMS: Mapping[str, type] = MappingProxyType(
    {"int64s": np.int64, "floats": np.float32, "strings": np.object_}
)


def _listed(node: OnnxNode, attrs: Sequence[str]) -> tuple[str, Array]:
    """The one of several attributes that is there, as an array."""
    for attr in attrs:
        value = node.attr(attr)
        if value is None or (not attr.endswith("tensor") and not len(value)):
            continue
        if attr.endswith("tensor"):
            array = node.importer.source.array(value)
            return attr, np.array(
                [_text(v) for v in array.reshape(-1)], object
            ) if array.dtype == object else array.reshape(-1)
        return attr, np.array(
            [_text(v) for v in value] if "strings" in attr else value, FORMS[attr.rpartition("_")[2]]
        )
    raise RefusedError(f"it has none of {', '.join(attrs)}")


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _label_encoder(node: OnnxNode) -> Sequence[Held]:
    """The value beside the key that an element equals, of several equal keys the first; else the default."""
    keys, values, default = _old_pairs(node) if node.attr("classes_strings") else _pairs(node)
    node.refuse_unless(len(keys) == len(values), f"{len(keys)} keys for {len(values)} values")
    texts: tuple[str, ...] = ()
    if values.dtype == object:
        texts = tuple(dict.fromkeys([*values.tolist(), _text(default)]))
        values = np.array([texts.index(v) for v in values], np.int64)
        default = texts.index(_text(default))
    fallback = np.asarray(default, values.dtype).reshape(())
    known = node.importer.texts.get(node.input(0))
    node.refuse_unless((known is not None) == (keys.dtype == object), "its keys are not of its input's type")
    if known is not None:
        table = dict(reversed(list(zip(keys.tolist(), values.tolist(), strict=True))))
        found = np.array([table.get(text, fallback) for text in known], values.dtype)
        made = node.emit(
            "Gather", [node.add_constant(found, tag="table"), node.input(0)], {"axis": 0}, tag="value"
        )
    else:
        node.refuse_unless(
            DType.of(keys) is node.dtype(0), f"its keys are {keys.dtype}, its input is {node.dtype(0).value}"
        )
        unique, first = np.unique(keys, return_index=True)
        arrays = (unique, values[first], fallback)
        constants = [
            node.add_constant(a, tag=tag)
            for a, tag in zip(arrays, ("keys", "values", "default"), strict=True)
        ]
        made = node.emit("MapValues", [node.input(0), *constants], tag="value")
    if texts:
        node.importer.texts[made] = texts
    return [made]


def _pairs(node: OnnxNode) -> tuple[Array, Array, Any]:
    _, keys = _listed(node, KEYS)
    form, values = _listed(node, VALUES)
    given = node.attr("default_tensor")
    if form == "values_tensor":
        none = {"f": -0.0, "i": -1, "O": "_Unused"}.get(values.dtype.kind, 0)
        return keys, values, none if given is None else node.importer.source.array(given).reshape(-1)[0]
    return keys, values, node.attr(DEFAULTS[form])


def _old_pairs(node: OnnxNode) -> tuple[Array, Array, Any]:
    """Before version 2: the classes' texts to their places, or back, by the type of the input."""
    texts = np.array([_text(v) for v in node.attr("classes_strings")], object)
    places = np.arange(len(texts))
    if node.input(0) in node.importer.texts:
        return texts, places, node.attr("default_int64")
    return places, texts, node.attr("default_string")


def _zip_map(node: OnnxNode) -> Sequence[Held]:
    """The probabilities themselves: a library has no maps."""
    names = node.attr("classlabels_strings") or node.attr("classlabels_int64s") or ()
    order = ", ".join(map(str, names[:20])) + (", ..." if len(names) > 20 else "")
    text = f"output {node.proto.output[0]!r} is a tensor with a column for each class ({order}) in the place of a list of maps"
    node.builder.notes.append(f"{node.importer.location}: {text}")
    return [node.input(0)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "ai.onnx.ml::ArrayFeatureExtractor": _array_feature_extractor,
        "ai.onnx.ml::Binarizer": _binarizer,
        "ai.onnx.ml::FeatureVectorizer": _feature_vectorizer,
        "ai.onnx.ml::Imputer": _imputer,
        "ai.onnx.ml::LabelEncoder": _label_encoder,
        "ai.onnx.ml::Normalizer": _normalizer,
        "ai.onnx.ml::OneHotEncoder": _one_hot,
        "ai.onnx.ml::Scaler": _scaler,
        "ai.onnx.ml::ZipMap": _zip_map,
    }
)
