"""Operators whose results are known when the model is read: sizes, ranges, patterns.

The IR has fixed shapes alone, so that their results become constants, and what is computed from them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.graph_builder import FOLD_LIMIT
from mace_core.ir import Array, DType, Shape
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue


def done_fill(node: TensorFlowNode, value: Array, shape: Shape) -> Sequence[OptionalValue]:
    """Add the node's output: one value everywhere."""
    node.refuse_unless(all(n >= 0 for n in shape), f"its shape is {list(shape)}")
    if prod(shape) * value.itemsize <= FOLD_LIMIT:
        return [node.result(np.full(shape, value, value.dtype))]
    # A large constant stays one element: a file of some bytes must not make a library of any size.
    return node.done("Expand", [node.add_constant(value.reshape((1,) * len(shape)))], {"shape": shape})


def _shape(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.result(np.asarray(node.shape(0), node.dtype_attr("out_type", DType.I32).numpy))]


def _shapes(node: TensorFlowNode) -> Sequence[OptionalValue]:
    dtype = node.dtype_attr("out_type", DType.I32).numpy
    return [node.result(np.asarray(node.shape(i), dtype), i) for i in range(node.operand_count)]


def _size(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.result(np.asarray(prod(node.shape(0)), node.dtype_attr("out_type", DType.I32).numpy))]


def _rank(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [node.result(np.asarray(node.rank(0), np.int32))]


def _fill(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape, value = node.ints(0, "shape"), node.array(1)
    if value is None:
        one = node.reshape(node.input(1), (1,) * len(shape))
        return node.done("Expand", [one], {"shape": shape})
    node.refuse_unless(value.size == 1, f"it fills with {value.size} values")
    return done_fill(node, value.reshape(()), shape)


def _like(value: int) -> Handler:
    return lambda node: done_fill(node, np.asarray(value, node.dtype(0).numpy), node.shape(0))


RANGE_OPERANDS = ("start", "limit", "delta")


def _range(node: TensorFlowNode) -> Sequence[OptionalValue]:
    start, limit, delta = (node.constant(i, role).reshape(()) for i, role in enumerate(RANGE_OPERANDS))
    node.refuse_unless(bool(delta), "its delta is 0")
    if start.dtype.kind != "f":
        count = len(range(int(start), int(limit), int(delta)))
    else:
        # As in sequence_ops.cc: the quotient in the operands' type, rounded up. In double precision that of
        # 0.3 and 0.1 lies above 3, which would make a fourth number.
        with np.errstate(all="ignore"):
            quotient = (limit - start) / delta
        node.refuse_unless(
            not np.isinf(quotient), f"it makes numbers from {start:g} to {limit:g} by {delta:g}"
        )
        count = int(np.ceil(quotient)) if quotient > 0 else 0
    node.refuse_unless(
        count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers", "store them as a constant"
    )
    return [node.result((start + np.arange(count) * delta).astype(start.dtype))]


def _lin_space(node: TensorFlowNode) -> Sequence[OptionalValue]:
    start, stop = node.constant(0, "start").reshape(()), node.constant(1, "stop").reshape(())
    count = node.integer(2, "count")
    node.refuse_unless(
        0 < count * start.itemsize <= FOLD_LIMIT, f"it makes {count} numbers", "store them as a constant"
    )
    return [node.result(np.linspace(float(start), float(stop), count).astype(start.dtype))]


def _where(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the indices of the true elements, whose number must be known: the condition is a constant."""
    return [node.result(np.argwhere(node.constant(0, "condition")).astype(np.int64))]


def _broadcast_args(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shapes = [node.ints(i, "shape") for i in (0, 1)]
    return [node.result(np.asarray(np.broadcast_shapes(*shapes), node.dtype(0).numpy))]


def _invert_permutation(node: TensorFlowNode) -> Sequence[OptionalValue]:
    perm = node.constant(0, "permutation")
    node.refuse_unless(
        sorted(perm.reshape(-1).tolist()) == list(range(perm.size)), f"{perm.tolist()} is no permutation"
    )
    return [node.result(np.argsort(perm, kind="stable").astype(perm.dtype))]


def _list_diff(node: TensorFlowNode) -> Sequence[OptionalValue]:
    values, without = node.constant(0, "values"), node.constant(1, "exclusions")
    indices = np.flatnonzero(~np.isin(values, without))
    index_type = node.dtype_attr("out_idx", DType.I32).numpy
    return [node.result(values[indices]), node.result(indices.astype(index_type), 1)]


def _unique(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the different elements in the order of their first appearance, where numpy sorts them."""
    values, first, inverse, counts = np.unique(node.constant(0, "input").reshape(-1), True, True, True)
    order, dtype = np.argsort(first, kind="stable"), node.dtype_attr("out_idx", DType.I32).numpy
    # numpy numbers the sorted elements; the inverse of the order leads from those numbers to TensorFlow's.
    indices = np.argsort(order, kind="stable")[inverse.reshape(-1)]
    results = (values[order], indices.astype(dtype), counts[order].astype(dtype))
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
