"""Operators whose results are known when the model is read: sizes, ranges, patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.graph_builder import FOLD_LIMIT
from mace_core.importer import RefusedError
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.model_file import element_type
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

FORMS: Mapping[str, type] = MappingProxyType(
    {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
)
"""Attributes of Constant besides `value`, which `translate.convert` reads, and their element types."""


def _output_constant(node: OnnxNode, array: Array) -> Sequence[Result]:
    """Return the node's only output as a constant, under its name."""
    return [node.builder.weight(node.output_name(), array)]


def _constant(node: OnnxNode) -> Sequence[Result]:
    for form, element in FORMS.items():
        value = node.attr(form)
        if value is not None:
            return _output_constant(node, np.asarray(value, element))
    raise RefusedError("its value is text or sparse; export the model with a dense tensor of numbers")


def _shape(node: OnnxNode) -> Sequence[Result]:
    start, end = 0, None
    # Shape: `start` and `end` cut the list from operator set 15 on. They clamp and count from the end as a
    # Python slice does.
    if node.opset >= 15:
        start, end = node.attr("start") or 0, node.attr("end")
    return _output_constant(node, np.asarray(node.shape(0)[start:end], np.int64))


def _size(node: OnnxNode) -> Sequence[Result]:
    return _output_constant(node, np.asarray(prod(node.shape(0)), np.int64))


def _constant_of_shape(node: OnnxNode) -> Sequence[Result]:
    shape = node.ints(0, "shape")
    node.refuse_unless(all(n >= 0 for n in shape), f"shape {list(shape)}")
    value = node.attr("value")
    # ConstantOfShape: without `value` it fills with zeros of single precision.
    fill = np.zeros(1, np.float32) if value is None else node.importer.file.array(value).reshape(1)
    if prod(shape) * fill.itemsize <= FOLD_LIMIT:
        return _output_constant(node, np.full(shape, fill[0], fill.dtype))
    # A larger one would stand in the library's data element by element; Expand fills it at run time.
    single = node.add_constant(fill.reshape((1,) * len(shape)))
    return node.done("Expand", [single], {"shape": shape})


def _range(node: OnnxNode) -> Sequence[Result]:
    names = ("start", "limit", "delta")
    start, limit, delta = (node.constant(i, name).reshape(()) for i, name in enumerate(names))
    node.refuse_unless(bool(delta), "its delta is 0")
    # Range: max(ceil((limit - start) / delta), 0) numbers, the limit itself left out.
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    node.refuse_unless(
        count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers; give them as a constant"
    )
    return _output_constant(node, (start + np.arange(count) * delta).astype(start.dtype))


def _eye_like(node: OnnxNode) -> Sequence[Result]:
    height, width = node.shape(0)
    code = node.attr("dtype")
    dtype = element_type(code) if code else node.dtype(0)
    size = height * width * dtype.size
    node.refuse_unless(size <= FOLD_LIMIT, f"a matrix of {height} x {width}; give it as a constant")
    return _output_constant(node, np.eye(height, width, node.attr("k"), dtype.numpy))


def _non_zero(node: OnnxNode) -> Sequence[Result]:
    return _output_constant(node, np.asarray(np.nonzero(node.constant(0, "input")), np.int64))


def _compress(node: OnnxNode) -> Sequence[Result]:
    # A condition shorter than the axis leaves out what lies behind it: only its true entries are gathered.
    chosen = np.flatnonzero(node.constant(1, "condition"))
    axis, data = node.attr("axis"), node.input(0)
    if axis is None:
        data, axis = node.emit("Reshape", [data], {"shape": (prod(node.shape(0)),)}, tag="flat"), 0
    return node.done("Gather", [data, node.add_constant(chosen, DType.I64, "chosen")], {"axis": axis})


def _unique(node: OnnxNode) -> Sequence[Result]:
    """Return the different elements, sorted or in the order of first appearance, along an axis or flat."""
    data = node.constant(0, "input")
    axis = node.attr("axis")
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    order = np.arange(len(first)) if node.attr("sorted") else np.argsort(first, kind="stable")
    # numpy numbers the sorted elements; the inverse permutation gives their numbers in the other order.
    positions = np.argsort(order, kind="stable")[inverse.reshape(-1)]
    indices = (array.astype(np.int64) for array in (first[order], positions, counts[order]))
    arrays = (np.take(values, order, axis=axis or 0), *indices)
    names = [node.importer.public_name(node.scope, output) for output in node.proto.output]
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
