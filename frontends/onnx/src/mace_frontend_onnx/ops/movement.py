"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_core.ir import Shape
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

LARGEST = (2**31 - 1, 2**63 - 1)
"""Ends of a Slice that stand for the end of the axis."""

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _reshape_to(node: OnnxNode, shape: Sequence[int]) -> Sequence[Result]:
    """Return input 0 in another shape of the same size."""
    shape = tuple(shape)
    if shape == node.shape(0):
        return [node.input(0)]
    if node.is_constant(0):
        return [node.derive_constant(0, ("reshape", shape), lambda a: a.reshape(shape))]
    return node.done("Reshape", [node.input(0)], {"shape": shape})


def _reshape(node: OnnxNode) -> Sequence[Result]:
    stated, old = node.ints(1, "shape"), node.shape(0)
    node.refuse_unless(stated.count(-1) <= 1 and min(stated, default=0) >= -1, f"shape {list(stated)}")
    # Reshape: 0 copies the axis of the input; from operator set 14 on `allowzero` makes it an empty axis.
    zero_is_copy = not (node.opset >= 14 and node.attr("allowzero"))
    copies = [i for i, n in enumerate(stated) if n == 0 and zero_is_copy]
    problem = f"shape {list(stated)} copies axes that {list(old)} has not"
    node.refuse_unless(all(i < len(old) for i in copies), problem)
    shape = [old[i] if i in copies else n for i, n in enumerate(stated)]
    if -1 in shape:
        rest = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = prod(old) // rest if rest else 0
    node.refuse_unless(prod(shape) == prod(old), f"{list(old)} does not fill shape {list(stated)}")
    return _reshape_to(node, shape)


def _flatten(node: OnnxNode) -> Sequence[Result]:
    shape, axis = node.shape(0), node.attr("axis")
    # Unlike other operators, Flatten allows an axis equal to the rank: [size, 1].
    node.refuse_unless(-len(shape) <= axis <= len(shape), f"axis {axis} of a tensor of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return _reshape_to(node, (prod(shape[:axis]), prod(shape[axis:])))


def _squeeze(node: OnnxNode) -> Sequence[Result]:
    # Squeeze, Unsqueeze: axes are an attribute before operator set 13. Without them Squeeze takes every axis
    # of length 1.
    shape, axes = node.shape(0), node.ints_since("axes", 1, 13)
    removed = {i for i, n in enumerate(shape) if n == 1}
    if axes is not None:
        removed = {node.axis(axis, len(shape)) for axis in axes}
    problem = f"axes {sorted(removed)} of {list(shape)} are not all 1 long"
    node.refuse_unless(all(shape[i] == 1 for i in removed), problem)
    return _reshape_to(node, [n for i, n in enumerate(shape) if i not in removed])


def _unsqueeze(node: OnnxNode) -> Sequence[Result]:
    shape, axes = list(node.shape(0)), node.ints_since("axes", 1, 13) or ()
    # Axes count in the result, so each is inserted where it will stand: in ascending order.
    rank = len(shape) + len(axes)
    for axis in sorted(node.axis(axis, rank) for axis in axes):
        shape.insert(axis, 1)
    return _reshape_to(node, shape)


def _transpose(node: OnnxNode) -> Sequence[Result]:
    rank = len(node.shape(0))
    perm = tuple(node.attr("perm") or reversed(range(rank)))
    node.refuse_unless(sorted(perm) == list(range(rank)), f"perm {list(perm)} of a tensor of rank {rank}")
    if perm == tuple(range(rank)):
        return [node.input(0)]
    if node.is_constant(0):
        return [node.permute(0, perm)]
    return node.done("Transpose", [node.input(0)], {"perm": perm})


def _concat(node: OnnxNode) -> Sequence[Result]:
    inputs = node.inputs()
    if len(inputs) == 1:
        return inputs
    return node.done("Concat", inputs, {"axis": node.axis(node.attr("axis"), len(node.shape(0)))})


def _split(node: OnnxNode) -> Sequence[Result]:
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    length, sizes = node.shape(0)[axis], node.ints_since("split", 1, 13)
    if not sizes:
        # Split: the number of parts is that of the outputs, and from operator set 18 on may be `num_outputs`.
        # The last part is smaller where the length does not divide.
        parts = (node.opset >= 18 and node.attr("num_outputs")) or len(node.proto.output)
        part = -(-length // parts)
        sizes = tuple(max(min(part, length - i * part), 0) for i in range(parts))
    return node.done("Split", [node.input(0)], {"axis": axis, "sizes": sizes})


def _slice(node: OnnxNode) -> Sequence[Result]:
    shape = node.shape(0)
    firsts, lasts, axes, strides = _slice_ranges(node)
    node.refuse_unless(firsts is not None and lasts is not None, "it lacks starts or ends")
    assert firsts is not None
    assert lasts is not None
    axes = tuple(range(len(firsts))) if axes is None else axes
    strides = strides or (1,) * len(axes)
    starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, first, last, stride in zip(axes, firsts, lasts, strides, strict=True):
        i = node.axis(axis, len(shape))
        node.refuse_unless(stride != 0, "one of its steps is 0")
        # Slice clamps and counts from the end as Python's slices do, but for two limits of backward steps.
        bounds = _python_start(first, stride, shape[i]), _python_end(last, stride, shape[i])
        elements = range(*slice(*bounds, stride).indices(shape[i]))
        starts[i], sizes[i], steps[i] = (elements.start if elements else 0), len(elements), stride
    if tuple(sizes) == shape and all(step == 1 for step in steps):
        return [node.input(0)]
    cut = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    return node.done("Slice", [node.input(0)], cut)


def _slice_ranges(node: OnnxNode) -> list[tuple[int, ...] | None]:
    """Return starts, ends, axes and steps of a Slice; None for those that are absent."""
    # Slice: they are attributes before operator set 10, when there were no steps.
    if node.opset < 10:
        return [node.attr("starts"), node.attr("ends"), node.attr("axes"), None]
    names = ("starts", "ends", "axes", "steps")
    return [node.ints(i, name) if node.has(i) else None for i, name in enumerate(names, 1)]


def _python_start(first: int, stride: int, length: int) -> int:
    """Return a start as Python's slice has it."""
    # Backwards, ONNX clamps a start before the first element to the first (Slice, "starts[i] is clamped into
    # the range [0, dims[axes[i]]-1]"); Python's slice begins before it, and takes nothing.
    return max(first, -length) if stride < 0 else first


def _python_end(last: int, stride: int, length: int) -> int | None:
    """Return an end as Python's slice has it."""
    # Backwards, ONNX writes an end before the first element, such as INT_MIN. Python counts a negative end
    # from the back, and has None for "through the first element". ONNX Runtime reads the two largest integers
    # as "to the end" in both directions, which older exporters write.
    return None if last in LARGEST or (stride < 0 and last < -length) else last


def _pad(node: OnnxNode) -> Sequence[Result]:
    rank = len(node.shape(0))
    pads, value = _pads_and_value(node)
    axes = tuple(range(rank))
    # Pad: `axes` exist from operator set 18 on.
    if node.opset >= 18 and node.has(3):
        axes = tuple(node.axis(axis, rank) for axis in node.ints(3, "axes"))
    node.refuse_unless(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for axis, low, high in zip(axes, pads, pads[len(axes) :], strict=False):
        before[axis], after[axis] = low, high
    mode = node.attr("mode")
    node.refuse_unless(mode in PAD_MODES, f"mode {mode!r}")
    attrs = {"before": _positive(before), "after": _positive(after), "mode": mode, "value": value}
    cut_before, cut_after = _positive([-n for n in before]), _positive([-n for n in after])
    if not any((*cut_before, *cut_after)):
        return node.done("Pad", [node.input(0)], attrs)
    return _cut_then_pad(node, (cut_before, cut_after), attrs)


def _cut_then_pad(node: OnnxNode, cuts: tuple[Shape, Shape], attrs: Mapping[str, object]) -> Sequence[Result]:
    """Express negative pads, which cut, by a slice before the positive ones."""
    # In this order reflect, edge and wrap read from what the cut leaves.
    sizes = tuple(n - before - after for n, before, after in zip(node.shape(0), *cuts, strict=True))
    node.refuse_unless(min(sizes) >= 0, f"pads cut more than there is of {list(node.shape(0))}")
    slice_attrs = {"starts": cuts[0], "sizes": sizes, "steps": (1,) * len(sizes)}
    cut = node.emit("Slice", [node.input(0)], slice_attrs, tag="cut")
    return node.done("Pad", [cut], attrs)


def _positive(numbers: Sequence[int]) -> Shape:
    return tuple(max(n, 0) for n in numbers)


def _pads_and_value(node: OnnxNode) -> tuple[Shape, int | float]:
    # Pad: both are attributes before operator set 11.
    if node.opset < 11:
        return tuple(node.attr("pads")), float(node.attr("value"))
    pads = node.ints(1, "pads")
    if not node.has(2):
        return pads, 0.0
    value = node.real_constant(2, "value").reshape(-1)[0]
    # An integer stays one: a float does not hold every integer of 64 bits.
    return pads, int(value) if value.dtype.kind in "iu" else float(value)


def _tile(node: OnnxNode) -> Sequence[Result]:
    return node.done("Tile", [node.input(0)], {"repeats": node.ints(1, "repeats")})


def _expand(node: OnnxNode) -> Sequence[Result]:
    # Expand broadcasts both ways: the stated shape may have fewer axes than the input, or 1 where it is
    # longer.
    old, stated = node.shape(0), node.ints(1, "shape")
    rank = max(len(old), len(stated))
    pairs = zip((1,) * (rank - len(old)) + old, (1,) * (rank - len(stated)) + stated, strict=True)
    shape = tuple(b if a == 1 else a for a, b in pairs)
    return [node.input(0)] if shape == old else node.done("Expand", [node.input(0)], {"shape": shape})


def _trilu(node: OnnxNode) -> Sequence[Result]:
    (k,) = node.ints(1, "k") if node.has(1) else (0,)
    return node.done("Trilu", [node.input(0)], {"k": k, "upper": bool(node.attr("upper"))})


def _reverse_sequence(node: OnnxNode) -> Sequence[Result]:
    attrs = {"batch_axis": node.attr("batch_axis"), "time_axis": node.attr("time_axis")}
    return node.done("ReverseSequence", [node.input(0), node.input(1)], attrs)


def _depth_to_space(node: OnnxNode) -> Sequence[Result]:
    # DepthToSpace: `mode` exists from operator set 11 on; before, depth, column, row is the only order.
    attrs = {"block": node.attr("blocksize"), "mode": (node.opset >= 11 and node.attr("mode")) or "DCR"}
    return node.channels_first(node.emit("DepthToSpace", [node.channels_last(node.input(0))], attrs))


def _space_to_depth(node: OnnxNode) -> Sequence[Result]:
    block = node.attr("blocksize")
    if node.attr("mode") != "CRD":
        x = node.channels_last(node.input(0))
        return node.channels_first(node.emit("SpaceToDepth", [x], {"block": block}))
    # SpaceToDepth of the IR has the order DCR alone; CRD came with operator set 28.
    batch, channels, height, width = node.shape(0)
    problem = f"blocks of {block} do not divide {list(node.shape(0))}"
    node.refuse_unless(height % block == 0 and width % block == 0, problem)
    split = (batch, channels, height // block, block, width // block, block)
    parts = node.emit("Reshape", [node.input(0)], {"shape": split}, tag="split")
    permuted = node.emit("Transpose", [parts], {"perm": (0, 1, 3, 5, 2, 4)}, tag="turned")
    return node.done("Reshape", [permuted], {"shape": (batch, channels * block * block, split[2], split[4])})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Concat": _concat,
        "DepthToSpace": _depth_to_space,
        "Expand": _expand,
        "Flatten": _flatten,
        "Pad": _pad,
        "Reshape": _reshape,
        "ReverseSequence": _reverse_sequence,
        "Slice": _slice,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "Squeeze": _squeeze,
        "Tile": _tile,
        "Transpose": _transpose,
        "Trilu": _trilu,
        "Unsqueeze": _unsqueeze,
    }
)
