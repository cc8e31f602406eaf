"""Operators that move elements and compute nothing.

One that changes nothing returns its operand itself: lists of tensors, constants and dead branches then pass
through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import Constant, OptionalValue


def done_reshape(node: TensorFlowNode, shape: Sequence[int]) -> Sequence[OptionalValue]:
    """Add the node's output: operand 0 in another shape. A constant is reshaped here, not at run time."""
    shape = tuple(shape)
    if shape == node.shape(0):
        return [node.value(0)]
    if isinstance(node.value(0), Constant):
        return [node.derive(0, ("reshape", shape), lambda a: a.reshape(shape))]
    return node.done("Reshape", [node.input(0)], {"shape": shape})


def _reshape(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape, old = list(node.ints(1, "shape")), node.shape(0)
    node.refuse_unless(shape.count(-1) <= 1 and min(shape, default=0) >= -1, f"its shape is {shape}")
    if -1 in shape:
        rest = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = prod(old) // rest if rest else 0
    node.refuse_unless(prod(shape) == prod(old), f"{list(old)} does not fill a shape of {shape}")
    return done_reshape(node, shape)


def _expand_dims(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape = list(node.shape(0))
    shape.insert(node.axis(node.integer(1, "axis"), len(shape) + 1), 1)
    return done_reshape(node, shape)


def _squeeze(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape, axes = node.shape(0), node.attr("squeeze_dims", ()) or node.attr("axis", ())
    removed = {node.axis(axis, len(shape)) for axis in axes}
    if not axes:
        removed = {i for i, n in enumerate(shape) if n == 1}
    node.refuse_unless(
        all(shape[i] == 1 for i in removed), f"axes {sorted(removed)} of {list(shape)} are not all 1 long"
    )
    return done_reshape(node, [n for i, n in enumerate(shape) if i not in removed])


def _transpose(node: TensorFlowNode) -> Sequence[OptionalValue]:
    perm, rank = node.ints(1, "permutation"), node.rank(0)
    node.refuse_unless(
        sorted(perm) == list(range(rank)), f"it permutes a tensor of rank {rank} by {list(perm)}"
    )
    if perm == tuple(range(rank)):
        return [node.value(0)]
    # Graphs transpose filters at run time that they could have stored so: it is done while the model is read.
    if isinstance(node.value(0), Constant):
        return [node.permute(0, perm)]
    return node.done("Transpose", [node.input(0)], {"perm": perm})


def _concat(axis_first: bool) -> Handler:
    """Return a handler of Concat, whose axis is the first operand, or of ConcatV2, where it is the last."""

    def handle(node: TensorFlowNode) -> Sequence[OptionalValue]:
        axis_index = 0 if axis_first else node.operand_count - 1
        indices = [i for i in range(node.operand_count) if i != axis_index]
        node.refuse_unless(bool(indices), "it joins nothing")
        axis = node.axis(node.integer(axis_index, "axis"), node.rank(indices[0]))
        # Empty tensors are what a loop begins with that joins its steps; the IR's op refuses them.
        filled = [i for i in indices if 0 not in node.shape(i)] or indices[:1]
        if len(filled) == 1:
            return [node.value(filled[0])]
        return node.done("Concat", [node.input(i) for i in filled], {"axis": axis})

    return handle


def _pack(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return done_stack(node, node.inputs(), node.attr("axis", 0))


def done_stack(node: TensorFlowNode, tensors: Sequence[str], axis: int) -> Sequence[OptionalValue]:
    """Add the node's output: tensors of one shape along a new axis."""
    node.refuse_unless(bool(tensors), "it joins nothing")
    shape = list(node.builder.shape(tensors[0]))
    axis = node.axis(axis, len(shape) + 1)
    shape.insert(axis, 1)
    parts = [node.emit("Reshape", [t], {"shape": tuple(shape)}, tag="part") for t in tensors]
    return parts if len(parts) == 1 else node.done("Concat", parts, {"axis": axis})


def _unpack(node: TensorFlowNode) -> Sequence[OptionalValue]:
    axis, parts = unstack(node, node.input(0), node.attr("axis", 0))
    node.refuse_unless(
        len(parts) == node.attr("num", len(parts)),
        f"axis {axis} has {len(parts)} parts, but it states {node.attr('num', len(parts))}",
    )
    return parts


def unstack(node: TensorFlowNode, tensor: str, axis: int) -> tuple[int, Sequence[str]]:
    """Return the axis, counted from the front, and the parts of a tensor along it, which lack it."""
    shape = node.builder.shape(tensor)
    axis = node.axis(axis, len(shape))
    count, rest = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    if count == 1:
        return axis, [node.emit("Reshape", [tensor], {"shape": rest}, tag="part")]
    if count == 0:
        return axis, []
    # The IR has no op that takes an axis away: parts of 1 are reshaped.
    parts = node.emit_all("Split", [tensor], {"axis": axis, "sizes": (1,) * count}, count=count, tag="parts")
    return axis, [node.emit("Reshape", [p], {"shape": rest}, tag="part") for p in parts]


def _split(node: TensorFlowNode) -> Sequence[OptionalValue]:
    axis, parts = node.axis(node.integer(0, "axis"), node.rank(1)), node.attr("num_split", 1)
    length = node.shape(1)[axis]
    node.refuse_unless(
        parts > 0 and length % parts == 0,
        f"{length} elements along axis {axis} do not make {parts} equal parts",
    )
    return _done_split(node, node.value(1), axis, (length // parts,) * parts)


def _split_v(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add parts of the sizes that are operand 1, of which one may be -1 for what is left."""
    sizes, axis = list(node.ints(1, "sizes")), node.axis(node.integer(2, "axis"), node.rank(0))
    length = node.shape(0)[axis]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = length - sum(sizes) - 1
    node.refuse_unless(
        sum(sizes) == length and min(sizes) >= 0,
        f"its sizes {sizes} do not add up to {length} elements of axis {axis}",
    )
    return _done_split(node, node.value(0), axis, tuple(sizes))


def _done_split(
    node: TensorFlowNode, value: OptionalValue, axis: int, sizes: tuple[int, ...]
) -> Sequence[OptionalValue]:
    if len(sizes) == 1:
        return [value]
    attrs = {"axis": axis, "sizes": sizes}
    return node.done("Split", [node.importer.tensor(value)], attrs, count=len(sizes))


def _slice(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape, starts = node.shape(0), node.ints(1, "starts")
    sizes = node.ints(2, "sizes")
    node.refuse_unless(
        len(starts) == len(sizes) == len(shape),
        f"it has starts {list(starts)} and sizes {list(sizes)} for a shape of {list(shape)}",
    )
    # A size of -1 stands for all that follows the start.
    sizes = tuple(n - s if c == -1 else c for n, s, c in zip(shape, starts, sizes, strict=True))
    return done_slice(node, starts, sizes, (1,) * len(shape))


def done_slice(
    node: TensorFlowNode, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> Sequence[OptionalValue]:
    """Add the node's output: a part of operand 0."""
    if tuple(sizes) == node.shape(0) and all(s == 1 for s in steps):
        return [node.value(0)]
    attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    return node.done("Slice", [node.input(0)], attrs)


def _pad(node: TensorFlowNode) -> Sequence[OptionalValue]:
    # An integer stays one: a float does not hold every integer of 64 bits.
    value = node.constant(2, "value").reshape(()).item() if node.operand_count > 2 else 0
    return _done_pad(node, {"mode": "constant", "value": value})


def _mirror_pad(node: TensorFlowNode) -> Sequence[OptionalValue]:
    mode = node.attr("mode", "")
    if mode == "REFLECT":
        return _done_pad(node, {"mode": "reflect"})
    node.refuse_unless(mode == "SYMMETRIC", f"mode {mode!r} is not supported")
    return _mirror_with_edge(node)


def _pads(node: TensorFlowNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads, rank = node.constant(1, "paddings"), node.rank(0)
    node.refuse_unless(
        pads.shape == (rank, 2) and (not pads.size or pads.min() >= 0),
        f"it has paddings {pads.tolist()} for {rank} axes",
    )
    return tuple(int(v) for v in pads[:, 0]), tuple(int(v) for v in pads[:, 1])


def _done_pad(node: TensorFlowNode, attrs: Mapping[str, object]) -> Sequence[OptionalValue]:
    before, after = _pads(node)
    if not any((*before, *after)):
        return [node.value(0)]
    return node.done("Pad", [node.input(0)], {"before": before, "after": after, **attrs})


def _mirror_with_edge(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add operand 0 mirrored with the element at the edge repeated, as a lookup along each axis in turn.

    The IR's Pad mirrors without the edge alone.
    """
    tensor = node.input(0)
    for axis, (before, after) in enumerate(zip(*_pads(node), strict=True)):
        size = node.shape(0)[axis]
        if not before and not after:
            continue
        node.refuse_unless(
            max(before, after) <= size,
            f"it mirrors {max(before, after)} elements of {size} along axis {axis}",
        )
        indices = np.pad(node.indices_to(size), (before, after), mode="symmetric")
        tensor = node.emit(
            "Gather",
            [tensor, node.add_constant(indices, DType.I64, "places")],
            {"axis": axis},
            tag="mirrored",
        )
    return [tensor]


def _tile(node: TensorFlowNode) -> Sequence[OptionalValue]:
    repeats = node.ints(1, "multiples")
    if all(n == 1 for n in repeats):
        return [node.value(0)]
    return node.done("Tile", [node.input(0)], {"repeats": repeats})


def _broadcast_to(node: TensorFlowNode) -> Sequence[OptionalValue]:
    shape = node.ints(1, "shape")
    if shape == node.shape(0):
        return [node.value(0)]
    return node.done("Expand", [node.input(0)], {"shape": shape})


def _reverse(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add operand 0 with axes reversed: Reverse has a boolean for each axis, ReverseV2 the axes by number."""
    rank, operand = node.rank(0), node.constant(1, "axes")
    is_mask = operand.dtype == np.bool_
    axes = set(np.flatnonzero(operand).tolist()) if is_mask else {*node.axes(1, rank)}
    shape = node.shape(0)
    # A slice backwards begins at the last element.
    starts = [max(n - 1, 0) if i in axes else 0 for i, n in enumerate(shape)]
    return done_slice(node, starts, shape, [-1 if i in axes else 1 for i in range(rank)])


def _reverse_sequence(node: TensorFlowNode) -> Sequence[OptionalValue]:
    attrs = {"batch_axis": node.attr("batch_dim", 0), "time_axis": node.attr("seq_dim", 0)}
    return node.done("ReverseSequence", [node.input(0), node.cast(node.input(1), DType.I64)], attrs)


def _roll(node: TensorFlowNode) -> Sequence[OptionalValue]:
    # The IR has no op that rolls: elements are looked up, one axis after another.
    tensor, shape = node.input(0), node.shape(0)
    for shift, axis in zip(node.ints(1, "shift"), node.ints(2, "axis"), strict=True):
        axis = node.axis(axis, len(shape))
        indices = (node.indices_to(shape[axis]) - shift) % max(shape[axis], 1)
        tensor = node.emit(
            "Gather", [tensor, node.add_constant(indices, DType.I64, "places")], {"axis": axis}, tag="rolled"
        )
    return [tensor]


def _band(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add matrices with so many diagonals below and above the main one, zeros elsewhere; -1 keeps all."""
    low, high = node.integer(1, "lower"), node.integer(2, "upper")
    tensor = node.input(0)
    # Trilu keeps what lies above a diagonal, or below: a band is both.
    if low >= 0:
        tensor = node.emit("Trilu", [tensor], {"k": -low, "upper": True}, tag="lower")
    if high >= 0:
        tensor = node.emit("Trilu", [tensor], {"k": high, "upper": False}, tag="upper")
    return [tensor]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Pad", "PadV2"), _pad),
        **dict.fromkeys(("Reverse", "ReverseV2"), _reverse),
        "BroadcastTo": _broadcast_to,
        "Concat": _concat(axis_first=True),
        "ConcatV2": _concat(axis_first=False),
        "ExpandDims": _expand_dims,
        "MatrixBandPart": _band,
        "MirrorPad": _mirror_pad,
        "Pack": _pack,
        "Reshape": _reshape,
        "ReverseSequence": _reverse_sequence,
        "Roll": _roll,
        "Slice": _slice,
        "Split": _split,
        "SplitV": _split_v,
        "Squeeze": _squeeze,
        "Tile": _tile,
        "Transpose": _transpose,
        "Unpack": _unpack,
    }
)
