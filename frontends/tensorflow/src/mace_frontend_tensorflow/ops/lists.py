"""Lists of tensors, which loops write their steps to: known by their items when the model is read, nothing is left of them.

TensorFlow 1 calls them arrays of tensors; their state travels along an operand of its own, called flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError
from mace_core.ir import DType, Shape
from mace_frontend_tensorflow.held import Held, TensorList
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.constant import filled
from mace_frontend_tensorflow.ops.movement import stacked, unstacked
from mace_frontend_tensorflow.tensors import dims

MOST = 1 << 16
"""Items of a list."""


def _list(node: TensorFlowNode, index: int) -> TensorList:
    held = node.held(index)
    if not isinstance(held, TensorList):
        raise RefusedError(f"its input {index} is no list of tensors")
    return held


def _shape(node: TensorFlowNode, index: int) -> Shape | None:
    """Operand `index` as the shape of items, if it tells all of it."""
    array = node.array(index) if index < node.count else None
    shape = tuple(int(n) for n in array.reshape(-1)) if array is not None and array.ndim == 1 else (-1,)
    return shape if min(shape, default=0) >= 0 else None


def _reserve(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListReserve(shape of items, number)."""
    return [
        _empty(
            node, node.integer(1, "number of items"), _shape(node, 0), node.kind("element_dtype", DType.F32)
        )
    ]


def _begin(node: TensorFlowNode) -> Sequence[Held]:
    """EmptyTensorList(shape of items, most)."""
    return [_empty(node, 0, _shape(node, 0), node.kind("element_dtype", DType.F32))]


def _empty(node: TensorFlowNode, count: int, shape: Shape | None, dtype: DType) -> TensorList:
    node.refuse_unless(0 <= count <= MOST, f"a list of {count} items")
    return TensorList((None,) * count, shape, dtype)


def _array(node: TensorFlowNode) -> Sequence[Held]:
    """TensorArrayV3(number)."""
    shape = dims(node.operation.attrs["element_shape"].shape) if node.has_attr("element_shape") else None
    known = tuple(d for d in shape if d is not None) if shape is not None and None not in shape else None
    made = _empty(node, node.integer(0, "number of items"), known, node.kind("dtype", DType.F32))
    return [made, made]


def _from_tensor(node: TensorFlowNode) -> Sequence[Held]:
    return [_split(node, 0, node.dtype(0))]


def _split(node: TensorFlowNode, index: int, dtype: DType) -> TensorList:
    node.refuse_unless(
        node.rank(index) > 0 and node.shape(index)[0] <= MOST,
        f"a list of the rows of {list(node.shape(index))}",
    )
    _, parts = unstacked(node, node.input(index), 0)
    return TensorList(tuple(parts), node.shape(index)[1:], dtype, node.input(index))


def _scatter(node: TensorFlowNode) -> Sequence[Held]:
    """TensorArrayScatterV3(handle, places, values, flow)."""
    before, places = _list(node, 3), node.ints(1, "places")
    rows = _split(node, 2, before.dtype)
    node.refuse_unless(len(places) == len(rows.items), f"{len(places)} places for {len(rows.items)} items")
    made = before
    for place, item in zip(places, rows.items, strict=True):
        made = _put(node, made, place, item)
    return [replace(made, shape=rows.shape, whole=rows.whole if made.items == rows.items else None)]


def _put(node: TensorFlowNode, into: TensorList, place: int, item: str | None) -> TensorList:
    node.refuse_unless(0 <= place < MOST, f"item {place}")
    items = [*into.items, *(None,) * (place + 1 - len(into.items))]
    items[place] = item
    return replace(into, items=tuple(items), whole=None)


def _get(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListGetItem(list, place, shape)."""
    return [_item(node, _list(node, 0), node.integer(1, "place"), _shape(node, 2))]


def _read(node: TensorFlowNode) -> Sequence[Held]:
    """TensorArrayReadV3(handle, place, flow)."""
    return [_item(node, _list(node, 2), node.integer(1, "place"), None)]


def _item(node: TensorFlowNode, of: TensorList, place: int, shape: Shape | None) -> Held:
    node.refuse_unless(0 <= place < len(of.items), f"item {place} of a list of {len(of.items)}")
    item = of.items[place]
    return item if item is not None else _nothing(node, of, shape)


def _nothing(node: TensorFlowNode, of: TensorList, shape: Shape | None) -> str:
    """What an item is that nothing was put in: zeros of the shape of all items."""
    known = next(
        (node.builder.shape(item) for item in of.items if item is not None),
        of.shape if shape is None else shape,
    )
    if known is None:
        raise RefusedError("it reads an item that was never written, and whose shape is not known")
    return node.importer.tensor(filled(node, np.zeros((), of.dtype.numpy), known)[0])


def _set(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListSetItem(list, place, item)."""
    return [_put(node, _list(node, 0), node.integer(1, "place"), node.input(2))]


def _write(node: TensorFlowNode) -> Sequence[Held]:
    """TensorArrayWriteV3(handle, place, item, flow)."""
    return [_put(node, _list(node, 3), node.integer(1, "place"), node.input(2))]


def _push(node: TensorFlowNode) -> Sequence[Held]:
    into = _list(node, 0)
    return [_put(node, into, len(into.items), node.input(1))]


def _pop(node: TensorFlowNode) -> Sequence[Held]:
    of = _list(node, 0)
    return [replace(of, items=of.items[:-1], whole=None), _item(node, of, len(of.items) - 1, _shape(node, 1))]


def _length(node: TensorFlowNode) -> Sequence[Held]:
    """Of the list that is the last operand: TensorListLength(list), TensorArraySizeV3(handle, flow)."""
    return [node.result(np.asarray(len(_list(node, node.count - 1).items), np.int32))]


def _resized(node: TensorFlowNode) -> Sequence[Held]:
    of, count = _list(node, 0), node.integer(1, "number of items")
    node.refuse_unless(0 <= count <= MOST, f"a list of {count} items")
    return [replace(of, items=(*of.items[:count], *(None,) * (count - len(of.items))), whole=None)]


def _stack(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListStack(list, shape)."""
    of = _list(node, 0)
    return _stacked(node, of, range(len(of.items)), _shape(node, 1))


def _gather(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListGather(list, places, shape)."""
    return _stacked(node, _list(node, 0), node.ints(1, "places"), _shape(node, 2))


def _gather_array(node: TensorFlowNode) -> Sequence[Held]:
    """TensorArrayGatherV3(handle, places, flow)."""
    return _stacked(node, _list(node, 2), node.ints(1, "places"), None)


def _stacked(
    node: TensorFlowNode, of: TensorList, places: Sequence[int], shape: Shape | None
) -> Sequence[Held]:
    if of.whole and tuple(places) == tuple(range(len(of.items))):
        return [of.whole]
    if not places:
        known = of.shape if shape is None else shape
        node.refuse_unless(known is not None, "it joins no items, whose shape is not known")
        return [node.result(np.zeros((0, *(known or ())), of.dtype.numpy))]
    return stacked(node, [node.importer.tensor(_item(node, of, place, shape)) for place in places], 0)


def _concat(node: TensorFlowNode) -> Sequence[Held]:
    """TensorListConcatV2(list, shape, lengths), TensorArrayConcatV3(handle, flow): items one after another, and how long each is."""
    of = _list(node, 1 if node.op == "TensorArrayConcatV3" else 0)
    node.refuse_unless(bool(of.items), "it joins no items, whose shape is not known")
    items = [node.importer.tensor(_item(node, of, place, None)) for place in range(len(of.items))]
    node.refuse_unless(all(node.builder.shape(item) for item in items), "it joins single numbers")
    lengths = node.result(np.asarray([node.builder.shape(item)[0] for item in items], np.int64), 1)
    return [items[0] if len(items) == 1 else node.done("Concat", items, {"axis": 0})[0], lengths]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("TensorArrayConcatV3", "TensorListConcat", "TensorListConcatV2"), _concat),
        **dict.fromkeys(("TensorArraySizeV3", "TensorListLength"), _length),
        "EmptyTensorList": _begin,
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
        "TensorListResize": _resized,
        "TensorListSetItem": _set,
        "TensorListStack": _stack,
    }
)
