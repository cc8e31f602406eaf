"""Operators that look up or replace elements by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.node import CUT_BEFORE, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.constant import done_fill
from mace_frontend_tensorflow.values import OptionalValue

SCATTERS: Mapping[str, str] = MappingProxyType(
    {
        "TensorScatterUpdate": "none",
        "TensorScatterAdd": "add",
        "TensorScatterMax": "max",
        "TensorScatterMin": "min",
    }
)
START: Mapping[str, float] = MappingProxyType({"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf})
"""The value with which a reduction begins."""


def _gather(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a Gather(data, indices), or GatherV2(data, indices, axis)."""
    rank, index_shape = node.rank(0), node.shape(1)
    axis = node.axis(node.integer(2, "axis") if node.operand_count > 2 else 0, rank)
    count = node.attr("batch_dims", 0)
    count += len(index_shape) if count < 0 else 0
    node.refuse_unless(
        0 <= count <= min(axis, len(index_shape)), f"it has {count} batch dimensions before axis {axis}"
    )
    if count:
        return _gather_in_batches(node, axis, count)
    return node.done("Gather", [node.input(0), node.input(1)], {"axis": axis})


def _gather_in_batches(node: TensorFlowNode, axis: int, batch: int) -> Sequence[OptionalValue]:
    """Add a Gather that pairs the rows of indices with the rows of data.

    GatherND reads the axis behind the batch: the axes between the two move behind it, and the result's move
    back.
    """
    rank, index_shape = node.rank(0), node.shape(1)
    between, inner = range(batch, axis), len(index_shape) - batch
    data = node.input(0)
    if between:
        perm = (*range(batch), axis, *between, *range(axis + 1, rank))
        data = node.emit("Transpose", [data], {"perm": perm}, tag="axis-first")
    inputs = [data, node.reshape(node.input(1), (*index_shape, 1), "places")]
    attrs = {"batch_dims": batch}
    if not between:
        return node.done("GatherND", inputs, attrs)
    perm_back = (
        *range(batch),
        *(inner + i for i in between),
        *range(batch, batch + inner),
        *range(inner + axis, rank - 1 + inner),
    )
    return node.done("Transpose", [node.emit("GatherND", inputs, attrs, tag="found")], {"perm": perm_back})


def _gather_nd(node: TensorFlowNode) -> Sequence[OptionalValue]:
    # A resource is a variable, which is a constant here: both forms read the same operands.
    return node.done("GatherND", [node.input(0), node.input(1)])


def _scatter(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a tensor with elements replaced; operands are the tensor, indices, and the elements for these."""
    return node.done("ScatterND", [node.input(i) for i in range(3)], {"reduction": SCATTERS[node.op]})


def _scatter_sub(node: TensorFlowNode) -> Sequence[OptionalValue]:
    # ScatterND has no reduction that subtracts.
    negated = node.emit("Neg", [node.input(2)], tag="less")
    return node.done("ScatterND", [node.input(0), node.input(1), negated], {"reduction": "add"})


def _scatter_nd(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add zeros with elements added to them; operands are indices, elements and the shape.

    Elements of the same index add up.
    """
    zeros = _constant(node, 0, node.ints(2, "shape"), node.dtype(1))
    return node.done("ScatterND", [zeros, node.input(0), node.input(1)], {"reduction": "add"})


def _constant(node: TensorFlowNode, value: float, shape: Shape, dtype: DType) -> str:
    """Add a tensor of one value everywhere."""
    node.refuse_unless(min(shape, default=0) >= 0, f"its shape is {list(shape)}")
    element = node.add_constant(np.full((1,) * len(shape), value), dtype, "element")
    return node.emit("Expand", [element], {"shape": shape}, tag="filled")


def _sparse_to_dense(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a tensor of a few values; operands are indices, the shape, the values, and the value elsewhere.

    The indices are a number, a list of them, or a row for each value.
    """
    shape, index_shape = node.ints(1, "shape"), node.shape(0)
    rows = (index_shape[0] if index_shape else 1, len(shape))
    node.refuse_unless(
        bool(shape) and np.prod(index_shape) == np.prod(rows),
        f"it has indices of shape {list(index_shape)} for a result of {list(shape)}",
    )
    indices = node.reshape(node.input(0), rows, "rows")
    values = node.emit("Expand", [node.input(2)], {"shape": (rows[0],)}, tag="values")
    default = node.reshape(node.input(3), (1,) * len(shape))
    elsewhere = node.emit("Expand", [default], {"shape": shape}, tag="filled")
    return node.done("ScatterND", [elsewhere, indices, values])


def _segments(reduction: str) -> Handler:
    """Return a handler that reduces the rows of each segment to one; rows of a negative segment are left out.

    Operands are the rows, the segment of each, and their number; without that the segments must be constant.
    """

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        shape, ids, dtype = node.shape(0), node.shape(1), node.dtype(0)
        node.refuse_unless(
            bool(ids) and shape[: len(ids)] == ids,
            f"it has segments of shape {list(ids)} for data of {list(shape)}",
        )
        known = node.constant(1, "segments") if node.operand_count < 3 else None
        count = node.integer(2, "number of segments") if known is None else int(known.max(initial=-1)) + 1
        node.refuse_unless(count >= 0, f"it has {count} segments")
        result_shape = (count, *shape[len(ids) :])
        # ScatterND has no index for a row that is left out: such rows go to one more segment, which is cut
        # off.
        padded_shape = (count + 1, *result_shape[1:])
        data = _constant(node, _start(reduction, dtype, known is not None), padded_shape, dtype)
        numbers = node.cast(node.input(1), DType.I64)
        below = node.emit("Less", [numbers, node.add_constant(0, DType.I64, "0")], tag="left-out")
        rows = node.emit("Where", [below, node.add_constant(count, DType.I64, "behind"), numbers], tag="kept")
        inputs = [data, node.reshape(rows, (*ids, 1), "rows"), node.input(0)]
        segments = node.emit("ScatterND", inputs, {"reduction": reduction}, tag="whole")
        zeros, ones = (0,) * len(result_shape), (1,) * len(result_shape)
        return node.done("Slice", [segments], {"starts": zeros, "sizes": result_shape, "steps": ones})

    return handle


def _start(reduction: str, dtype: DType, empty_is_zero: bool) -> float:
    """Return the value of an empty segment: the lowest or highest number, and 0 for sorted segments."""
    if reduction not in ("max", "min"):
        return START[reduction]
    if empty_is_zero:
        raise RefusedError(
            "it reduces sorted segments to their extremes; "
            "export the model with unsorted_segment_max or unsorted_segment_min"
        )
    limits = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
    return float(limits.min) if reduction == "max" else float(limits.max)


def _one_hot(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add one-hot rows; operands are indices, depth, the value at the index and the value elsewhere."""
    rank, depth = node.rank(0), node.integer(1, "depth")
    axis = node.attr("axis", -1)
    # The IR's op reads both values as one tensor, the one elsewhere first.
    off, on = (node.reshape(node.input(i), (1,), "value") for i in (3, 2))
    values = node.emit("Concat", [off, on], {"axis": 0}, tag="values")
    indices, limit = node.input(0), node.add_constant(depth, node.dtype(0), "depth")
    # The IR's op counts negative indices from the end, TensorFlow's has none for them.
    if not node.dtype(0).value.startswith("u"):
        below = node.emit("Less", [indices, node.add_constant(0, node.dtype(0), "0")], tag="below")
        indices = node.emit("Where", [below, limit, indices], tag="indices")
    attrs = {"depth": depth, "axis": rank if axis == -1 else node.axis(axis, rank + 1)}
    return node.done("OneHot", [indices, values], attrs)


def _top(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the largest elements and their indices; TopK has their number as attribute, TopKV2 as operand."""
    k = node.integer(1, "number") if node.operand_count > 1 else node.attr("k", 0)
    # Both order the elements, and equal ones by their index.
    values, indices = node.done("TopK", [node.input(0)], {"k": k, "axis": -1}, count=2)
    return [values, node.cast(indices, node.dtype_attr("index_type", DType.I32))]


def _stitch(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add rows of several tensors in the order of constant indices; the last row of an index counts."""
    count = node.operand_count // 2
    indices = [node.constant(i, "indices") for i in range(count)]
    flat = np.concatenate([i.reshape(-1) for i in indices]).astype(np.int64)
    length = int(flat.max(initial=-1)) + 1
    is_complete = 0 < length <= flat.size and set(flat.tolist()) == {*range(length)}
    node.refuse_unless(is_complete, f"its indices {flat.tolist()[:16]} leave gaps")
    rows = [
        node.reshape(node.input(count + n), (array.size, *node.shape(count + n)[array.ndim :]), "rows")
        for n, array in enumerate(indices)
    ]
    stacked = rows[0] if count == 1 else node.emit("Concat", rows, {"axis": 0}, tag="joined")
    last = np.zeros(length, np.int64)
    for row, index in enumerate(flat):
        last[index] = row
    return node.done("Gather", [stacked, node.add_constant(last, DType.I64, "order")], {"axis": 0})


def _diagonal(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add matrices with the last axis along their main diagonals, zeros elsewhere."""
    _main_only(node, 1)
    size = node.shape(0)[-1]
    # A condition that broadcasts costs less than a scatter: it is one constant for all matrices of the batch.
    mask = node.indices_to(size * size).reshape(size, size) % (size + 1) == 0
    column = node.reshape(node.input(0), (*node.shape(0), 1), "column")
    zero = node.add_constant(0, node.dtype(0), "0")
    return node.done("Where", [node.add_constant(mask, DType.BOOL, "diagonal"), column, zero])


def _diagonal_part(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the main diagonals of the last two axes: every n + 1st element of both in one."""
    _main_only(node, 1)
    *outer, rows, columns = node.shape(0)
    size = min(rows, columns)
    flat = node.reshape(node.input(0), (*outer, rows * columns), "flat")
    # Rows may be longer or shorter than columns: the diagonal has the elements of the shorter.
    ones = (1,) * len(outer)
    starts = (0,) * (len(outer) + 1)
    attrs = {"starts": starts, "sizes": (*outer, size), "steps": (*ones, columns + 1)}
    return node.done("Slice", [flat], attrs)


def _main_only(node: TensorFlowNode, index: int) -> None:
    """Raise RefusedError if operand `index`, which older forms lack, asks for another diagonal."""
    node.refuse_unless(
        node.operand_count <= index or not any(node.ints(index, "diagonals")),
        "it has diagonals besides the main one",
        CUT_BEFORE,
    )


def _embedding(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add rows of a variable."""
    node.refuse_unless(not node.attr("batch_dims", 0), "it has batch dimensions before the rows", CUT_BEFORE)
    return node.done("Gather", [node.input(0), node.input(1)], {"axis": 0})


def _empty(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add zeros for a tensor whose elements TensorFlow leaves open."""
    return done_fill(node, np.zeros((), node.dtype_attr("dtype").numpy), node.ints(0, "shape"))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("DynamicStitch", "ParallelDynamicStitch"), _stitch),
        **dict.fromkeys(("Gather", "GatherV2"), _gather),
        **dict.fromkeys(("GatherNd", "ResourceGatherNd"), _gather_nd),
        **dict.fromkeys(("MatrixDiag", "BatchMatrixDiag"), _diagonal),
        **dict.fromkeys(
            ("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", "BatchMatrixDiagPart"), _diagonal_part
        ),
        **dict.fromkeys(SCATTERS, _scatter),
        **dict.fromkeys(("TopK", "TopKV2"), _top),
        "Empty": _empty,
        "OneHot": _one_hot,
        "ResourceGather": _embedding,
        "ScatterNd": _scatter_nd,
        "SegmentProd": _segments("mul"),
        "SegmentSum": _segments("add"),
        "SparseToDense": _sparse_to_dense,
        "TensorScatterSub": _scatter_sub,
        "UnsortedSegmentMax": _segments("max"),
        "UnsortedSegmentMin": _segments("min"),
        "UnsortedSegmentProd": _segments("mul"),
        "UnsortedSegmentSum": _segments("add"),
    }
)
