"""Operators that read or write elements by their index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MAX_PLACES = 1 << 24
"""Limit of the elements of a constant that a handler here adds, which the size of the file does not limit."""


def _gather(node: TfliteNode) -> Sequence[str]:
    options, shape, places = node.options("GatherOptions"), node.shape(0), node.shape(1)
    axis, count = node.axis(int(options.Axis()), len(shape)), int(options.BatchDims())
    # A negative number of batch dimensions counts from the rank of the indices, as in tf.gather.
    if count < 0:
        count += len(places)
    if count == 0:
        return node.done("Gather", [node.input(0), node.stored_input(1)], {"axis": axis})
    node.require_consistent(
        0 < count <= min(axis, len(places)), f"it has {count} batch dimensions before axis {axis}"
    )
    return _gather_in_batches(node, axis, count)


def _gather_in_batches(node: TfliteNode, axis: int, batch: int) -> Sequence[str]:
    """Gather in each batch by itself.

    GatherND reads the axis behind the batch: the axis is moved there before, and the axes between the batch
    and it are moved back in front of the indices' axes after.
    """
    rank, places = len(node.shape(0)), node.shape(1)
    between = range(batch, axis)
    perm = (*range(batch), axis, *between, *range(axis + 1, rank))
    data = node.emit("Transpose", [node.input(0)], {"perm": perm}, tag="axis-first")
    indices = node.emit("Reshape", [node.stored_input(1)], {"shape": (*places, 1)}, tag="places")
    inner = len(places) - batch
    operands, attrs = [data, indices], {"batch_dims": batch}
    back = (
        *range(batch),
        *range(batch + inner, batch + inner + len(between)),
        *range(batch, batch + inner),
        *range(batch + inner + len(between), rank - 1 + inner),
    )
    if back == tuple(range(len(back))):
        return node.done("GatherND", operands, attrs)
    gathered = node.emit("GatherND", operands, attrs, tag="found")
    return node.done("Transpose", [gathered], {"perm": back})


def _gather_nd(node: TfliteNode) -> Sequence[str]:
    return node.done("GatherND", [node.input(0), node.stored_input(1)])


def _embedding_lookup(node: TfliteNode) -> Sequence[str]:
    """Add EMBEDDING_LOOKUP(ids, rows)."""
    return node.done("Gather", [node.input(1), node.stored_input(0)], {"axis": 0})


def _scatter_nd(node: TfliteNode) -> Sequence[str]:
    """Add SCATTER_ND(indices, updates, shape): updates of one element add up."""
    data = _add_filled(node, node.ints(2, "shape"), 0, node.tensor(node.input(1)).real.dtype)
    return node.done("ScatterND", [data, node.stored_input(0), node.input(1)], {"reduction": "add"})


def _add_filled(node: TfliteNode, shape: Sequence[int], value: float, dtype: DType) -> str:
    node.require_consistent(
        min(shape, default=0) >= 0 and prod(shape) <= MAX_PLACES, f"it has a result of shape {list(shape)}"
    )
    return node.add_constant(np.full(tuple(shape), value, dtype.numpy), tag="filled")


def _sparse_to_dense(node: TfliteNode) -> Sequence[str]:
    """Add SPARSE_TO_DENSE(indices, shape, values, default).

    The indices are one index, a vector of indices into a vector, or rows of coordinates.
    """
    shape, places = node.ints(1, "shape"), node.shape(0)
    rows = (*places[:1], len(shape)) if places else (1, len(shape))
    node.require_consistent(
        prod(places) == prod(rows), f"it has indices of shape {list(places)} for a result of {list(shape)}"
    )
    indices = node.emit("Reshape", [node.stored_input(0)], {"shape": rows}, tag="rows")
    values = node.emit("Expand", [node.input(2)], {"shape": (rows[0],)}, tag="values")
    filled = node.emit("Expand", [node.input(3)], {"shape": shape}, tag="filled")
    return node.done("ScatterND", [filled, indices, values])


def _segments(reduction: str, count_input: int | None) -> Handler:
    """Return the handler of a reduction of all rows that have one segment's number.

    count_input: the input that states the number of segments; None if the largest number does.
    """

    def handle(node: TfliteNode) -> Sequence[str]:
        shape, ids, dtype = node.shape(0), node.shape(1), node.tensor(node.input(0)).real.dtype
        node.require_consistent(
            shape[: len(ids)] == ids, f"it has numbers of shape {list(ids)} for data of {list(shape)}"
        )
        if count_input is None:
            count = int(node.constant(1, "segments").max(initial=-1)) + 1
        else:
            count = node.ints(count_input, "number of segments")[0]
        # A segment without rows keeps the start value: the lowest or highest number of the type for max and
        # min (kernels/unsorted_segment.cc).
        start = {"add": 0.0, "mul": 1.0}.get(reduction)
        if start is None:
            bounds = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
            start = bounds.min if reduction == "max" else bounds.max
        # Rows of a negative number belong to no segment: they go to one more behind the last, which is cut
        # off.
        data = _add_filled(node, (count + 1, *shape[len(ids) :]), start, dtype)
        numbers = node.emit("Cast", [node.stored_input(1)], {"to": "i64"}, tag="numbers")
        left_out = node.emit("Less", [numbers, node.add_constant(np.int64(0))], tag="left-out")
        segments = node.emit("Where", [left_out, node.add_constant(np.int64(count)), numbers], tag="kept")
        rows = node.emit("Reshape", [segments], {"shape": (*ids, 1)}, tag="rows")
        reduced = node.emit("ScatterND", [data, rows, node.input(0)], {"reduction": reduction}, tag="whole")
        sizes = (count, *shape[len(ids) :])
        cut = {"starts": (0,) * len(sizes), "sizes": sizes, "steps": (1,) * len(sizes)}
        return node.done("Slice", [reduced], cut)

    return handle


def _update_slice(node: TfliteNode) -> Sequence[str]:
    """Add DYNAMIC_UPDATE_SLICE(x, update, starts)."""
    shape, part = node.shape(0), node.shape(1)
    node.require_consistent(
        len(shape) == len(part) and all(p <= d for p, d in zip(part, shape, strict=True)),
        f"it writes {list(part)} in {list(shape)}",
    )
    # Axes that the update fills behind the last one that it does not fill need no index: whole slices are
    # written.
    depth = max((i + 1 for i, (p, d) in enumerate(zip(part, shape, strict=True)) if p != d), default=0)
    node.require_supported(
        prod(part[:depth]) * max(depth, 1) <= MAX_PLACES, f"it writes an update of shape {list(part)}"
    )
    if depth == 0:
        return node.done("Identity", [node.input(1)])
    axes = np.meshgrid(*map(np.arange, part[:depth]), indexing="ij")
    grid: Array = np.stack(axes, axis=-1).astype(np.int32)
    # As the kernel, and XLA, whose operator this is: starts are clamped so that the update lies inside.
    limits = np.subtract(shape[:depth], part[:depth]).astype(np.int32)
    starts = node.emit("Cast", [node.stored_input(2)], {"to": "i32"}, tag="starts")
    used = node.emit("Slice", [starts], {"starts": (0,), "sizes": (depth,), "steps": (1,)}, tag="starts")
    above = node.emit("Maximum", [used, node.add_constant(np.zeros(depth, np.int32))], tag="above")
    inside = node.emit("Minimum", [above, node.add_constant(limits)], tag="inside")
    places = node.emit("Add", [node.add_constant(grid, tag="grid"), inside], tag="places")
    return node.done("ScatterND", [node.input(0), places, node.input(1)])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "GATHER": _gather,
        "GATHER_ND": _gather_nd,
        "EMBEDDING_LOOKUP": _embedding_lookup,
        "SCATTER_ND": _scatter_nd,
        "SPARSE_TO_DENSE": _sparse_to_dense,
        "DYNAMIC_UPDATE_SLICE": _update_slice,
        "SEGMENT_SUM": _segments("add", None),
        "UNSORTED_SEGMENT_SUM": _segments("add", 2),
        "UNSORTED_SEGMENT_PROD": _segments("mul", 2),
        "UNSORTED_SEGMENT_MAX": _segments("max", 2),
        "UNSORTED_SEGMENT_MIN": _segments("min", 2),
    }
)
