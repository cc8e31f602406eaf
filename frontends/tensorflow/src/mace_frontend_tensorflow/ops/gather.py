"""Operators that look elements up, or put them, by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.constant import filled

SCATTERS: Mapping[str, str] = MappingProxyType(
    {
        "TensorScatterUpdate": "none",
        "TensorScatterAdd": "add",
        "TensorScatterMax": "max",
        "TensorScatterMin": "min",
    }
)
START: Mapping[str, float] = MappingProxyType({"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf})
"""What a reduction begins with."""


def _gather(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are data, indices, and in the second form the axis."""
    rank, places = node.rank(0), node.shape(1)
    axis = node.axis(node.integer(2, "axis") if node.count > 2 else 0, rank)
    count = node.attr("batch_dims", 0)
    count += len(places) if count < 0 else 0
    node.refuse_unless(0 <= count <= min(axis, len(places)), f"{count} batch dimensions before axis {axis}")
    if count:
        return _gather_in_batches(node, axis, count)
    return node.done("Gather", [node.input(0), node.input(1)], {"axis": axis})


def _gather_in_batches(node: TensorFlowNode, axis: int, batch: int) -> Sequence[Held]:
    """By pairs of a row of indices and a row of data: the axis is moved behind the batch, and what lies between moved back."""
    rank, places = node.rank(0), node.shape(1)
    between, inner = range(batch, axis), len(places) - batch
    data = node.input(0)
    if between:
        data = node.emit(
            "Transpose",
            [data],
            {"perm": (*range(batch), axis, *between, *range(axis + 1, rank))},
            tag="axis-first",
        )
    found = [data, node.reshape(node.input(1), (*places, 1), "places")], {"batch_dims": batch}
    if not between:
        return node.done("GatherND", *found)
    back = (
        *range(batch),
        *(inner + i for i in between),
        *range(batch, batch + inner),
        *range(inner + axis, rank - 1 + inner),
    )
    return node.done("Transpose", [node.emit("GatherND", *found, tag="found")], {"perm": back})


def _gather_nd(node: TensorFlowNode) -> Sequence[Held]:
    return node.done("GatherND", [node.input(0), node.input(1)])


def _scatter(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are a tensor, places in it, and what to put there."""
    return node.done("ScatterND", [node.input(i) for i in range(3)], {"reduction": SCATTERS[node.op]})


def _scatter_sub(node: TensorFlowNode) -> Sequence[Held]:
    less = node.emit("Neg", [node.input(2)], tag="less")
    return node.done("ScatterND", [node.input(0), node.input(1), less], {"reduction": "add"})


def _scatter_nd(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are places, what to put there, and the shape; what falls on one place adds up."""
    zeros = _constant(node, 0, node.ints(2, "shape"), node.dtype(1))
    return node.done("ScatterND", [zeros, node.input(0), node.input(1)], {"reduction": "add"})


def _constant(node: TensorFlowNode, value: float, shape: Shape, dtype: DType) -> str:
    """One value everywhere."""
    node.refuse_unless(min(shape, default=0) >= 0, f"shape {list(shape)}")
    return node.emit(
        "Expand",
        [node.add_constant(np.full((1,) * len(shape), value), dtype, "element")],
        {"shape": shape},
        tag="filled",
    )


def _sparse_to_dense(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are indices (a number, a list or rows of them), the shape, values, and the value elsewhere."""
    shape, places = node.ints(1, "shape"), node.shape(0)
    rows = (places[0] if places else 1, len(shape))
    node.refuse_unless(
        bool(shape) and np.prod(places) == np.prod(rows),
        f"indices of shape {list(places)} for a result of {list(shape)}",
    )
    indices = node.reshape(node.input(0), rows, "rows")
    values = node.emit("Expand", [node.input(2)], {"shape": (rows[0],)}, tag="values")
    elsewhere = node.emit(
        "Expand", [node.reshape(node.input(3), (1,) * len(shape))], {"shape": shape}, tag="filled"
    )
    return node.done("ScatterND", [elsewhere, indices, values])


def _segments(reduction: str) -> Handler:
    """Rows of one number reduced to one, those of a negative number left out.

    The number of segments is operand 2; without it the segments are constant.
    """

    def handle(node: TensorFlowNode) -> Sequence[Held]:
        shape, ids, dtype = node.shape(0), node.shape(1), node.dtype(0)
        node.refuse_unless(
            bool(ids) and shape[: len(ids)] == ids, f"numbers of shape {list(ids)} for data of {list(shape)}"
        )
        known = node.constant(1, "segments") if node.count < 3 else None
        count = node.integer(2, "number of segments") if known is None else int(known.max(initial=-1)) + 1
        node.refuse_unless(count >= 0, f"{count} segments")
        made = (count, *shape[len(ids) :])
        data = _constant(node, _start(reduction, dtype, known is not None), (count + 1, *made[1:]), dtype)
        numbers = node.cast(node.input(1), DType.I64)
        below = node.emit("Less", [numbers, node.add_constant(0, DType.I64, "0")], tag="left-out")
        rows = node.emit("Where", [below, node.add_constant(count, DType.I64, "behind"), numbers], tag="kept")
        whole = node.emit(
            "ScatterND",
            [data, node.reshape(rows, (*ids, 1), "rows"), node.input(0)],
            {"reduction": reduction},
            tag="whole",
        )
        return node.done(
            "Slice", [whole], {"starts": (0,) * len(made), "sizes": made, "steps": (1,) * len(made)}
        )

    return handle


def _start(reduction: str, dtype: DType, empty_is_zero: bool) -> float:
    """What an empty segment gives: the least or greatest number, 0 among sorted segments."""
    if reduction not in ("max", "min"):
        return START[reduction]
    if empty_is_zero:
        raise RefusedError(
            "the extremes of segments that are sorted; export the model with unsorted_segment_max or unsorted_segment_min"
        )
    ends = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
    return float(ends.min) if reduction == "max" else float(ends.max)


def _one_hot(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are indices, depth, the value at the index and the value elsewhere."""
    rank, depth = node.rank(0), node.integer(1, "depth")
    axis = node.attr("axis", -1)
    off, on = (node.reshape(node.input(i), (1,), "value") for i in (3, 2))
    values = node.emit("Concat", [off, on], {"axis": 0}, tag="values")
    indices, limit = node.input(0), node.add_constant(depth, node.dtype(0), "depth")
    # The IR's op counts negative indices from the end, TensorFlow's has none for them.
    if not node.dtype(0).value.startswith("u"):
        below = node.emit("Less", [indices, node.add_constant(0, node.dtype(0), "0")], tag="below")
        indices = node.emit("Where", [below, limit, indices], tag="indices")
    attrs = {"depth": depth, "axis": rank if axis == -1 else node.axis(axis, rank + 1)}
    return node.done("OneHot", [indices, values], attrs)


def _top(node: TensorFlowNode) -> Sequence[Held]:
    """The number is an attribute in the first form, an operand in the second."""
    k = node.integer(1, "number") if node.count > 1 else node.attr("k", 0)
    values, places = node.done("TopK", [node.input(0)], {"k": k, "axis": -1}, count=2)
    return [values, node.cast(places, node.kind("index_type", DType.I32))]


def _stitch(node: TensorFlowNode) -> Sequence[Held]:
    """Rows of several tensors put in the order that constant lists of indices tell.

    Of one index twice the last counts.
    """
    count = node.count // 2
    indices = [node.constant(i, "indices") for i in range(count)]
    flat = np.concatenate([i.reshape(-1) for i in indices]).astype(np.int64)
    length = int(flat.max(initial=-1)) + 1
    whole = 0 < length <= flat.size and set(flat.tolist()) == {*range(length)}
    node.refuse_unless(whole, f"indices {flat.tolist()[:16]} leave gaps")
    rows = [
        node.reshape(node.input(count + n), (array.size, *node.shape(count + n)[array.ndim :]), "rows")
        for n, array in enumerate(indices)
    ]
    joined = rows[0] if count == 1 else node.emit("Concat", rows, {"axis": 0}, tag="joined")
    last = np.zeros(length, np.int64)
    for place, index in enumerate(flat):
        last[index] = place
    return node.done("Gather", [joined, node.add_constant(last, DType.I64, "order")], {"axis": 0})


def _diagonal(node: TensorFlowNode) -> Sequence[Held]:
    """A matrix with the last axis along its main diagonal, zeros elsewhere."""
    _main_only(node, 1)
    size = node.shape(0)[-1]
    mask = node.counted(size * size).reshape(size, size) % (size + 1) == 0
    column = node.reshape(node.input(0), (*node.shape(0), 1), "column")
    zero = node.add_constant(0, node.dtype(0), "0")
    return node.done("Where", [node.add_constant(mask, DType.BOOL, "diagonal"), column, zero])


def _diagonal_part(node: TensorFlowNode) -> Sequence[Held]:
    """The main diagonal of the last two axes: every n + 1st element of the two in one."""
    _main_only(node, 1)
    *outer, rows, columns = node.shape(0)
    size = min(rows, columns)
    flat = node.reshape(node.input(0), (*outer, rows * columns), "flat")
    ones = (1,) * len(outer)
    return node.done(
        "Slice",
        [flat],
        {"starts": (0,) * (len(outer) + 1), "sizes": (*outer, size), "steps": (*ones, columns + 1)},
    )


def _main_only(node: TensorFlowNode, index: int) -> None:
    """RefusedError if operand `index`, where there is one, asks for other diagonals than the main one."""
    node.refuse_unless(
        node.count <= index or not any(node.ints(index, "diagonals")), "diagonals besides the main one"
    )


def _embedding(node: TensorFlowNode) -> Sequence[Held]:
    """Rows of a variable."""
    node.refuse_unless(not node.attr("batch_dims", 0), "batch dimensions before the rows")
    return node.done("Gather", [node.input(0), node.input(1)], {"axis": 0})


def _zeros(node: TensorFlowNode) -> Sequence[Held]:
    return filled(node, np.zeros((), node.kind("dtype").numpy), node.ints(0, "shape"))


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
        "Empty": _zeros,
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
