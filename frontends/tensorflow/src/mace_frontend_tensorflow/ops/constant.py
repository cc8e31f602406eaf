"""Operators whose results are known when the model is read: sizes, ranges, patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.graph_builder import FOLD_LIMIT
from mace_core.ir import Array, DType, Shape
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler


def filled(node: TensorFlowNode, value: Array, shape: Shape) -> Sequence[Held]:
    """The node's output: one value everywhere."""
    node.refuse_unless(all(n >= 0 for n in shape), f"shape {list(shape)}")
    if prod(shape) * value.itemsize <= FOLD_LIMIT:
        return [node.result(np.full(shape, value, value.dtype))]
    return node.done("Expand", [node.add_constant(value.reshape((1,) * len(shape)))], {"shape": shape})


def _shape(node: TensorFlowNode) -> Sequence[Held]:
    return [node.result(np.asarray(node.shape(0), node.kind("out_type", DType.I32).numpy))]


def _shapes(node: TensorFlowNode) -> Sequence[Held]:
    dtype = node.kind("out_type", DType.I32).numpy
    return [node.result(np.asarray(node.shape(i), dtype), i) for i in range(node.count)]


def _size(node: TensorFlowNode) -> Sequence[Held]:
    return [node.result(np.asarray(prod(node.shape(0)), node.kind("out_type", DType.I32).numpy))]


def _rank(node: TensorFlowNode) -> Sequence[Held]:
    return [node.result(np.asarray(node.rank(0), np.int32))]


def _fill(node: TensorFlowNode) -> Sequence[Held]:
    shape, value = node.ints(0, "shape"), node.array(1)
    if value is None:
        one = node.reshape(node.input(1), (1,) * len(shape))
        return node.done("Expand", [one], {"shape": shape})
    node.refuse_unless(value.size == 1, f"it fills with {value.size} values")
    return filled(node, value.reshape(()), shape)


def _like(value: int) -> Handler:
    return lambda node: filled(node, np.asarray(value, node.dtype(0).numpy), node.shape(0))


def _range(node: TensorFlowNode) -> Sequence[Held]:
    start, limit, delta = (
        node.constant(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta"))
    )
    node.refuse_unless(bool(delta), "its delta is 0")
    if start.dtype.kind == "f":
        count = (
            max(int(np.ceil(np.abs((float(limit) - float(start)) / float(delta)))), 0)
            if (limit - start) * delta > 0
            else 0
        )
    else:
        count = len(range(int(start), int(limit), int(delta)))
    node.refuse_unless(
        count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers; give them as a constant"
    )
    return [node.result((start + np.arange(count) * delta).astype(start.dtype))]


def _lin_space(node: TensorFlowNode) -> Sequence[Held]:
    start, stop = (node.constant(i, what).reshape(()) for i, what in enumerate(("start", "stop")))
    count = node.integer(2, "count")
    node.refuse_unless(
        0 < count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers; give them as a constant"
    )
    return [node.result(np.linspace(float(start), float(stop), count).astype(start.dtype))]


def _where(node: TensorFlowNode) -> Sequence[Held]:
    return [node.result(np.argwhere(node.constant(0, "condition")).astype(np.int64))]


def _broadcast_args(node: TensorFlowNode) -> Sequence[Held]:
    shapes = [node.ints(i, "shape") for i in (0, 1)]
    return [node.result(np.asarray(np.broadcast_shapes(*shapes), node.dtype(0).numpy))]


def _invert_permutation(node: TensorFlowNode) -> Sequence[Held]:
    perm = node.constant(0, "permutation")
    node.refuse_unless(
        sorted(perm.reshape(-1).tolist()) == list(range(perm.size)), f"{perm.tolist()} is no permutation"
    )
    return [node.result(np.argsort(perm, kind="stable").astype(perm.dtype))]


def _list_diff(node: TensorFlowNode) -> Sequence[Held]:
    values, without = node.constant(0, "values"), node.constant(1, "exclusions")
    places = np.flatnonzero(~np.isin(values, without))
    return [node.result(values[places]), node.result(places.astype(node.kind("out_idx", DType.I32).numpy), 1)]


def _unique(node: TensorFlowNode) -> Sequence[Held]:
    """In the order of first appearance."""
    values, first, inverse, counts = np.unique(node.constant(0, "input").reshape(-1), True, True, True)
    order, dtype = np.argsort(first, kind="stable"), node.kind("out_idx", DType.I32).numpy
    places = np.argsort(order, kind="stable")[inverse.reshape(-1)]
    results = (values[order], places.astype(dtype), counts[order].astype(dtype))
    return [node.result(a, i) for i, a in enumerate(results)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "BroadcastArgs": _broadcast_args,
        "Fill": _fill,
        "InvertPermutation": _invert_permutation,
        "LinSpace": _lin_space,
        "ListDiff": _list_diff,
        "OnesLike": _like(1),
        "Range": _range,
        "Rank": _rank,
        "Shape": _shape,
        "ShapeN": _shapes,
        "Size": _size,
        "Unique": _unique,
        "UniqueWithCounts": _unique,
        "Where": _where,
        "ZerosLike": _like(0),
    }
)
