"""Lists of tensors, to which loops write their steps.

Their lengths and items are known when the model is read, so that nothing is left of them in the graph.

TensorFlow 1 calls them tensor arrays; their state is an operand of its own, called flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.node import CUT_BEFORE, EXPORT_AGAIN, TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.constant import done_fill
from mace_frontend_tensorflow.ops.movement import done_stack, unstack
from mace_frontend_tensorflow.tensors import dims
from mace_frontend_tensorflow.values import OptionalValue, TensorList

MAX_ITEMS = 1 << 16
"""Items of a list: each is a node of the graph."""


def _list(node: TensorFlowNode, index: int) -> TensorList:
    value = node.value(index)
    if not isinstance(value, TensorList):
        raise RefusedError(f"its input {index} is no list of tensors; {EXPORT_AGAIN}")
    return value


def _shape(node: TensorFlowNode, index: int) -> Shape | None:
    """Return operand `index` as the shape of items; None unless it states every dimension."""
    array = node.array(index) if index < node.operand_count else None
    shape = tuple(int(n) for n in array.reshape(-1)) if array is not None and array.ndim == 1 else (-1,)
    return shape if min(shape, default=0) >= 0 else None


def _reserve(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return a list for TensorListReserve(shape of items, number)."""
    dtype = node.dtype_attr("element_dtype", DType.F32)
    return [_empty(node, node.integer(1, "number of items"), _shape(node, 0), dtype)]


def _empty_list(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return a list for EmptyTensorList(shape of items, maximum): it begins without items."""
    return [_empty(node, 0, _shape(node, 0), node.dtype_attr("element_dtype", DType.F32))]


def _check_count(node: TensorFlowNode, count: int) -> None:
    node.refuse_unless(
        0 <= count <= MAX_ITEMS, f"it makes a list of {count} items; the maximum is {MAX_ITEMS}", CUT_BEFORE
    )


def _empty(node: TensorFlowNode, count: int, shape: Shape | None, dtype: DType) -> TensorList:
    _check_count(node, count)
    return TensorList((None,) * count, shape, dtype)


def _array(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return a list for TensorArrayV3(number), as the handle and as the flow."""
    shape = dims(node.operation.attrs["element_shape"].shape) if node.has_attr("element_shape") else None
    # Arrays made by tf.TensorArray with infer_shape leave the shape open until the first item is written.
    known = None
    if shape is not None and None not in shape:
        known = tuple(size for size in shape if size is not None)
    array = _empty(node, node.integer(0, "number of items"), known, node.dtype_attr("dtype", DType.F32))
    return [array, array]


def _from_tensor(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [_split(node, 0, node.dtype(0))]


def _split(node: TensorFlowNode, index: int, dtype: DType) -> TensorList:
    node.refuse_unless(
        node.rank(index) > 0 and node.shape(index)[0] <= MAX_ITEMS,
        f"it makes a list of the rows of {list(node.shape(index))}; the maximum is {MAX_ITEMS}",
        CUT_BEFORE,
    )
    _, parts = unstack(node, node.input(index), 0)
    return TensorList(tuple(parts), node.shape(index)[1:], dtype, node.input(index))


def _scatter(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the list after TensorArrayScatterV3(handle, indices, values, flow)."""
    before, indices = _list(node, 3), node.ints(1, "indices")
    rows = _split(node, 2, before.dtype)
    node.refuse_unless(
        len(indices) == len(rows.items), f"it has {len(indices)} indices for {len(rows.items)} items"
    )
    after = before
    for index, item in zip(indices, rows.items, strict=True):
        after = _put(node, after, index, item)
    # All rows in their order are the tensor itself.
    stacked = rows.stacked if after.items == rows.items else None
    return [replace(after, shape=rows.shape, stacked=stacked)]


def _put(node: TensorFlowNode, items: TensorList, index: int, item: str | None) -> TensorList:
    """Return the list with an item at an index; it grows if the index lies behind its end."""
    node.refuse_unless(
        0 <= index < MAX_ITEMS, f"it writes item {index}; the maximum is {MAX_ITEMS} items", CUT_BEFORE
    )
    written = [*items.items, *(None,) * (index + 1 - len(items.items))]
    written[index] = item
    return replace(items, items=tuple(written), stacked=None)


def _get(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the item of TensorListGetItem(list, index, shape)."""
    return [_item(node, _list(node, 0), node.integer(1, "index"), _shape(node, 2))]


def _read(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the item of TensorArrayReadV3(handle, index, flow)."""
    return [_item(node, _list(node, 2), node.integer(1, "index"), None)]


def _item(node: TensorFlowNode, items: TensorList, index: int, shape: Shape | None) -> OptionalValue:
    node.refuse_unless(
        0 <= index < len(items.items), f"it reads item {index} of a list of {len(items.items)}"
    )
    item = items.items[index]
    return item if item is not None else _zeros(node, items, shape)


def _zeros(node: TensorFlowNode, items: TensorList, shape: Shape | None) -> str:
    """Return an item that was never written: zeros of the shape that all items have (list_kernels.h)."""
    shapes = [node.builder.shape(item) for item in items.items if item is not None]
    stated = items.shape if shape is None else shape
    known = shapes[0] if shapes else stated
    if known is None:
        raise RefusedError(
            f"it reads an item that was never written, and whose shape is not known; {CUT_BEFORE}"
        )
    return node.importer.tensor(done_fill(node, np.zeros((), items.dtype.numpy), known)[0])


def _set(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the list after TensorListSetItem(list, index, item)."""
    return [_put(node, _list(node, 0), node.integer(1, "index"), node.input(2))]


def _write(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Return the list after TensorArrayWriteV3(handle, index, item, flow)."""
    return [_put(node, _list(node, 3), node.integer(1, "index"), node.input(2))]


def _push(node: TensorFlowNode) -> Sequence[OptionalValue]:
    items = _list(node, 0)
    return [_put(node, items, len(items.items), node.input(1))]


def _pop(node: TensorFlowNode) -> Sequence[OptionalValue]:
    items = _list(node, 0)
    last = _item(node, items, len(items.items) - 1, _shape(node, 1))
    return [replace(items, items=items.items[:-1], stacked=None), last]


def _length(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the length for TensorListLength(list) or TensorArraySizeV3(handle, flow)."""
    return [node.result(np.asarray(len(_list(node, node.operand_count - 1).items), np.int32))]


def _resize(node: TensorFlowNode) -> Sequence[OptionalValue]:
    items, count = _list(node, 0), node.integer(1, "number of items")
    _check_count(node, count)
    added = (None,) * (count - len(items.items))
    return [replace(items, items=(*items.items[:count], *added), stacked=None)]


def _stack(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the items of TensorListStack(list, shape) along a new axis."""
    items = _list(node, 0)
    return _stack_items(node, items, range(len(items.items)), _shape(node, 1))


def _gather(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the items of TensorListGather(list, indices, shape) along a new axis."""
    return _stack_items(node, _list(node, 0), node.ints(1, "indices"), _shape(node, 2))


def _gather_array(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the items of TensorArrayGatherV3(handle, indices, flow) along a new axis."""
    return _stack_items(node, _list(node, 2), node.ints(1, "indices"), None)


def _stack_items(
    node: TensorFlowNode, items: TensorList, indices: Sequence[int], shape: Shape | None
) -> Sequence[OptionalValue]:
    # A list that was made of a tensor, or that a layer wrote, has that tensor already.
    if items.stacked and tuple(indices) == tuple(range(len(items.items))):
        return [items.stacked]
    if not indices:
        known = items.shape if shape is None else shape
        node.refuse_unless(known is not None, "it joins no items, whose shape is not known", CUT_BEFORE)
        return [node.result(np.zeros((0, *(known or ())), items.dtype.numpy))]
    return done_stack(node, [node.importer.tensor(_item(node, items, index, shape)) for index in indices], 0)


def _concat(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add the items of a list one after another, and the length of each.

    These are TensorListConcatV2(list, shape, lengths) and TensorArrayConcatV3(handle, flow).
    """
    items = _list(node, 1 if node.op == "TensorArrayConcatV3" else 0)
    node.refuse_unless(bool(items.items), "it joins no items, whose shape is not known", CUT_BEFORE)
    # The handle is an operand too, but the state of the array is the flow.
    tensors = [node.importer.tensor(_item(node, items, index, None)) for index in range(len(items.items))]
    node.refuse_unless(all(node.builder.shape(tensor) for tensor in tensors), "it joins single numbers")
    sizes = [node.builder.shape(tensor)[0] for tensor in tensors]
    lengths = node.result(np.asarray(sizes, np.int64), 1)
    return [tensors[0] if len(tensors) == 1 else node.done("Concat", tensors, {"axis": 0})[0], lengths]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("TensorArrayConcatV3", "TensorListConcat", "TensorListConcatV2"), _concat),
        **dict.fromkeys(("TensorArraySizeV3", "TensorListLength"), _length),
        "EmptyTensorList": _empty_list,
        "TensorArrayGatherV3": _gather_array,
        "TensorArrayReadV3": _read,
        "TensorArrayScatterV3": _scatter,
        "TensorArrayV3": _array,
        "TensorArrayWriteV3": _write,
        "TensorListFromTensor": _from_tensor,
        "TensorListGather": _gather,
        "TensorListGetItem": _get,
        "TensorListPopBack": _pop,
        "TensorListPushBack": _push,
        "TensorListReserve": _reserve,
        "TensorListResize": _resize,
        "TensorListSetItem": _set,
        "TensorListStack": _stack,
    }
)
