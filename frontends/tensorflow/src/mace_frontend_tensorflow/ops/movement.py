"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType
from mace_frontend_tensorflow.held import Constant, Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler


def reshaped(node: TensorFlowNode, shape: Sequence[int]) -> Sequence[Held]:
    """The node's output: operand 0 in another shape; a constant at once."""
    shape = tuple(shape)
    if shape == node.shape(0):
        return [node.held(0)]
    if isinstance(node.held(0), Constant):
        return [node.derived(0, ("reshape", shape), lambda a: a.reshape(shape))]
    return node.done("Reshape", [node.input(0)], {"shape": shape})


def _reshape(node: TensorFlowNode) -> Sequence[Held]:
    shape, old = list(node.ints(1, "shape")), node.shape(0)
    node.refuse_unless(shape.count(-1) <= 1 and min(shape, default=0) >= -1, f"shape {shape}")
    if -1 in shape:
        rest = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = prod(old) // rest if rest else 0
    node.refuse_unless(prod(shape) == prod(old), f"{list(old)} does not fill shape {shape}")
    return reshaped(node, shape)


def _expand_dims(node: TensorFlowNode) -> Sequence[Held]:
    shape = list(node.shape(0))
    shape.insert(node.axis(node.integer(1, "axis"), len(shape) + 1), 1)
    return reshaped(node, shape)


def _squeeze(node: TensorFlowNode) -> Sequence[Held]:
    shape, given = node.shape(0), node.attr("squeeze_dims", ()) or node.attr("axis", ())
    gone = {node.axis(a, len(shape)) for a in given} if given else {i for i, n in enumerate(shape) if n == 1}
    node.refuse_unless(
        all(shape[i] == 1 for i in gone), f"axes {sorted(gone)} of {list(shape)} are not all 1 long"
    )
    return reshaped(node, [n for i, n in enumerate(shape) if i not in gone])


def _transpose(node: TensorFlowNode) -> Sequence[Held]:
    perm, rank = node.ints(1, "permutation"), node.rank(0)
    node.refuse_unless(
        sorted(perm) == list(range(rank)), f"permutation {list(perm)} of a tensor of rank {rank}"
    )
    if perm == tuple(range(rank)):
        return [node.held(0)]
    if isinstance(node.held(0), Constant):
        return [node.permuted(0, perm)]
    return node.done("Transpose", [node.input(0)], {"perm": perm})


def _concat(axis_first: bool) -> Handler:
    def handle(node: TensorFlowNode) -> Sequence[Held]:
        where = 0 if axis_first else node.count - 1
        indices = [i for i in range(node.count) if i != where]
        node.refuse_unless(bool(indices), "it has nothing to join")
        axis = node.axis(node.integer(where, "axis"), node.rank(indices[0]))
        full = [i for i in indices if 0 not in node.shape(i)] or indices[:1]
        return (
            [node.held(full[0])]
            if len(full) == 1
            else node.done("Concat", [node.input(i) for i in full], {"axis": axis})
        )

    return handle


def _pack(node: TensorFlowNode) -> Sequence[Held]:
    return stacked(node, node.inputs(), node.attr("axis", 0))


def stacked(node: TensorFlowNode, tensors: Sequence[str], axis: int) -> Sequence[Held]:
    """The node's output: tensors of one shape along a new axis."""
    node.refuse_unless(bool(tensors), "it has nothing to join")
    shape = list(node.builder.shape(tensors[0]))
    axis = node.axis(axis, len(shape) + 1)
    shape.insert(axis, 1)
    parts = [node.emit("Reshape", [t], {"shape": tuple(shape)}, tag="part") for t in tensors]
    return parts if len(parts) == 1 else node.done("Concat", parts, {"axis": axis})


def _unpack(node: TensorFlowNode) -> Sequence[Held]:
    axis, parts = unstacked(node, node.input(0), node.attr("axis", 0))
    node.refuse_unless(
        len(parts) == node.attr("num", len(parts)),
        f"it takes {len(parts)} parts along axis {axis} apart, and says another",
    )
    return parts


def unstacked(node: TensorFlowNode, tensor: str, axis: int) -> tuple[int, Sequence[str]]:
    """The parts of a tensor along an axis, which they lose; and the axis, counted from the front."""
    shape = node.builder.shape(tensor)
    axis = node.axis(axis, len(shape))
    count, rest = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    if count == 1:
        return axis, [node.emit("Reshape", [tensor], {"shape": rest}, tag="part")]
    if count == 0:
        return axis, []
    parts = node.emit_all("Split", [tensor], {"axis": axis, "sizes": (1,) * count}, count=count, tag="parts")
    return axis, [node.emit("Reshape", [p], {"shape": rest}, tag="part") for p in parts]


def _split(node: TensorFlowNode) -> Sequence[Held]:
    axis, parts = node.axis(node.integer(0, "axis"), node.rank(1)), node.attr("num_split", 1)
    length = node.shape(1)[axis]
    node.refuse_unless(
        parts > 0 and length % parts == 0,
        f"{length} elements along axis {axis} do not make {parts} equal parts",
    )
    return _parts(node, node.held(1), axis, (length // parts,) * parts)


def _split_sizes(node: TensorFlowNode) -> Sequence[Held]:
    sizes, axis = list(node.ints(1, "sizes")), node.axis(node.integer(2, "axis"), node.rank(0))
    length = node.shape(0)[axis]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = length - sum(sizes) - 1
    node.refuse_unless(
        sum(sizes) == length and min(sizes) >= 0, f"sizes {sizes} of {length} elements along axis {axis}"
    )
    return _parts(node, node.held(0), axis, tuple(sizes))


def _parts(node: TensorFlowNode, held: Held, axis: int, sizes: tuple[int, ...]) -> Sequence[Held]:
    if len(sizes) == 1:
        return [held]
    return node.done("Split", [node.importer.tensor(held)], {"axis": axis, "sizes": sizes}, count=len(sizes))


def _slice(node: TensorFlowNode) -> Sequence[Held]:
    shape, starts = node.shape(0), node.ints(1, "starts")
    sizes = node.ints(2, "sizes")
    node.refuse_unless(
        len(starts) == len(sizes) == len(shape),
        f"starts {list(starts)} and sizes {list(sizes)} of {list(shape)}",
    )
    sizes = tuple(n - s if c == -1 else c for n, s, c in zip(shape, starts, sizes, strict=True))
    return cut(node, starts, sizes, (1,) * len(shape))


def cut(
    node: TensorFlowNode, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
) -> Sequence[Held]:
    """The node's output: a part of operand 0."""
    if tuple(sizes) == node.shape(0) and all(s == 1 for s in steps):
        return [node.held(0)]
    return node.done(
        "Slice", [node.input(0)], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    )


def _pad(node: TensorFlowNode) -> Sequence[Held]:
    value = node.constant(2, "value").reshape(()).item() if node.count > 2 else 0
    return _padded(node, {"mode": "constant", "value": float(value)})


def _mirror_pad(node: TensorFlowNode) -> Sequence[Held]:
    mode = node.attr("mode", "")
    if mode == "REFLECT":
        return _padded(node, {"mode": "reflect"})
    node.refuse_unless(mode == "SYMMETRIC", f"mode {mode!r} is not supported")
    return _symmetric(node)


def _pads(node: TensorFlowNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pads, rank = node.constant(1, "paddings"), node.rank(0)
    node.refuse_unless(
        pads.shape == (rank, 2) and (not pads.size or pads.min() >= 0),
        f"paddings {pads.tolist()} for {rank} axes",
    )
    return tuple(int(v) for v in pads[:, 0]), tuple(int(v) for v in pads[:, 1])


def _padded(node: TensorFlowNode, attrs: Mapping[str, object]) -> Sequence[Held]:
    before, after = _pads(node)
    if not any((*before, *after)):
        return [node.held(0)]
    return node.done("Pad", [node.input(0)], {"before": before, "after": after, **attrs})


def _symmetric(node: TensorFlowNode) -> Sequence[Held]:
    """Mirror with the element at the edge repeated: the indices along each axis in turn."""
    tensor = node.input(0)
    for axis, (before, after) in enumerate(zip(*_pads(node), strict=True)):
        size = node.shape(0)[axis]
        if not before and not after:
            continue
        node.refuse_unless(
            max(before, after) <= size,
            f"it mirrors {max(before, after)} elements of {size} along axis {axis}",
        )
        places = np.pad(node.counted(size), (before, after), mode="symmetric")
        tensor = node.emit(
            "Gather", [tensor, node.add_constant(places, DType.I64, "places")], {"axis": axis}, tag="mirrored"
        )
    return [tensor]


def _tile(node: TensorFlowNode) -> Sequence[Held]:
    repeats = node.ints(1, "multiples")
    return (
        [node.held(0)]
        if all(n == 1 for n in repeats)
        else node.done("Tile", [node.input(0)], {"repeats": repeats})
    )


def _broadcast_to(node: TensorFlowNode) -> Sequence[Held]:
    shape = node.ints(1, "shape")
    return (
        [node.held(0)] if shape == node.shape(0) else node.done("Expand", [node.input(0)], {"shape": shape})
    )


def _reverse(node: TensorFlowNode) -> Sequence[Held]:
    """Axes by number, or one truth value for each axis."""
    rank, given = node.rank(0), node.constant(1, "axes")
    axes = set(np.flatnonzero(given).tolist()) if given.dtype == np.bool_ else {*node.axes(1, rank)}
    shape = node.shape(0)
    starts = [max(n - 1, 0) if i in axes else 0 for i, n in enumerate(shape)]
    return cut(node, starts, shape, [-1 if i in axes else 1 for i in range(rank)])


def _reverse_sequence(node: TensorFlowNode) -> Sequence[Held]:
    attrs = {"batch_axis": node.attr("batch_dim", 0), "time_axis": node.attr("seq_dim", 0)}
    return node.done("ReverseSequence", [node.input(0), node.cast(node.input(1), DType.I64)], attrs)


def _roll(node: TensorFlowNode) -> Sequence[Held]:
    tensor, shape = node.input(0), node.shape(0)
    for shift, axis in zip(node.ints(1, "shift"), node.ints(2, "axis"), strict=True):
        axis = node.axis(axis, len(shape))
        places = (node.counted(shape[axis]) - shift) % max(shape[axis], 1)
        tensor = node.emit(
            "Gather", [tensor, node.add_constant(places, DType.I64, "places")], {"axis": axis}, tag="rolled"
        )
    return [tensor]


def _band(node: TensorFlowNode) -> Sequence[Held]:
    """Keep so many diagonals below and above the main one; a negative number keeps all."""
    low, high = node.integer(1, "lower"), node.integer(2, "upper")
    tensor = node.input(0)
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
        "SplitV": _split_sizes,
        "Squeeze": _squeeze,
        "Tile": _tile,
        "Transpose": _transpose,
        "Unpack": _unpack,
    }
)
