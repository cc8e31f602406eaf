"""Operators whose results are known when the model is read: sizes, ranges, patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.graph_builder import FOLD_LIMIT
from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.source import element_type

FORMS: Mapping[str, type] = MappingProxyType(
    {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
)
"""The forms of Constant besides a tensor, which the translation keeps as it is, and their element types."""


def _named(node: OnnxNode, array: Array) -> Sequence[Held]:
    return [node.builder.weight(node.output_name(), array)]


def _constant(node: OnnxNode) -> Sequence[Held]:
    for form, kind in FORMS.items():
        value = node.attr(form)
        if value is not None:
            return _named(node, np.asarray(value, kind))
    raise RefusedError("its value is text or sparse; export the model with a dense tensor of numbers")


def _shape(node: OnnxNode) -> Sequence[Held]:
    start, end = (node.attr("start") or 0, node.attr("end")) if node.opset >= 15 else (0, None)
    return _named(node, np.asarray(node.shape(0)[start:end], np.int64))


def _size(node: OnnxNode) -> Sequence[Held]:
    return _named(node, np.asarray(prod(node.shape(0)), np.int64))


def _constant_of_shape(node: OnnxNode) -> Sequence[Held]:
    shape = node.ints(0, "shape")
    node.refuse_unless(all(n >= 0 for n in shape), f"shape {list(shape)}")
    value = node.attr("value")
    fill = np.zeros(1, np.float32) if value is None else node.importer.source.array(value).reshape(1)
    if prod(shape) * fill.itemsize <= FOLD_LIMIT:
        return _named(node, np.full(shape, fill[0], fill.dtype))
    return node.done("Expand", [node.add_constant(fill.reshape((1,) * len(shape)))], {"shape": shape})


def _range(node: OnnxNode) -> Sequence[Held]:
    start, limit, delta = (
        node.constant(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta"))
    )
    node.refuse_unless(bool(delta), "its delta is 0")
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    node.refuse_unless(
        count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers; give them as a constant"
    )
    return _named(node, (start + np.arange(count) * delta).astype(start.dtype))


def _eye_like(node: OnnxNode) -> Sequence[Held]:
    rows, columns = node.shape(0)
    code = node.attr("dtype")
    dtype = element_type(code) if code else node.dtype(0)
    node.refuse_unless(
        rows * columns * dtype.size <= FOLD_LIMIT, f"a matrix of {rows} x {columns}; give it as a constant"
    )
    return _named(node, np.eye(rows, columns, node.attr("k"), dtype.numpy))


def _non_zero(node: OnnxNode) -> Sequence[Held]:
    return _named(node, np.asarray(np.nonzero(node.constant(0, "input")), np.int64))


def _compress(node: OnnxNode) -> Sequence[Held]:
    chosen = np.flatnonzero(node.constant(1, "condition"))
    axis, data = node.attr("axis"), node.input(0)
    if axis is None:
        data, axis = node.emit("Reshape", [data], {"shape": (prod(node.shape(0)),)}, tag="flat"), 0
    return node.done("Gather", [data, node.add_constant(chosen, DType.I64, "chosen")], {"axis": axis})


def _unique(node: OnnxNode) -> Sequence[Held]:
    """Sorted, or in the order of first appearance, as numpy.unique over an axis or over the flat array."""
    data = node.constant(0, "input")
    axis = node.attr("axis")
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    order = np.argsort(first, kind="stable") if not node.attr("sorted") else np.arange(len(first))
    places = np.argsort(order, kind="stable")[inverse.reshape(-1)]
    results = (np.take(values, order, axis=axis or 0), first[order], places, counts[order])
    arrays = (results[0], *(r.astype(np.int64) for r in results[1:]))
    names = [node.importer.outside(node.scope, o) for o in node.proto.output]
    return [node.builder.weight(name, a) if name else "" for name, a in zip(names, arrays, strict=False)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Compress": _compress,
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "EyeLike": _eye_like,
        "NonZero": _non_zero,
        "Range": _range,
        "Shape": _shape,
        "Size": _size,
        "Unique": _unique,
    }
)
