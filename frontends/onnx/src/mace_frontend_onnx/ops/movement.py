"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_core.ir import Shape
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def _reshaped(node: OnnxNode, shape: Sequence[int]) -> Sequence[Held]:
    shape = tuple(shape)
    if shape == node.shape(0):
        return [node.input(0)]
    if node.array_is_constant(0):
        return [node.derived(0, ("reshape", shape), lambda a: a.reshape(shape))]
    return node.done("Reshape", [node.input(0)], {"shape": shape})


def _reshape(node: OnnxNode) -> Sequence[Held]:
    given, old = node.ints(1, "shape"), node.shape(0)
    zero_is_copy = not (node.opset >= 14 and node.attr("allowzero"))
    node.refuse_unless(given.count(-1) <= 1 and min(given, default=0) >= -1, f"shape {list(given)}")
    copies = [i for i, n in enumerate(given) if n == 0 and zero_is_copy]
    node.refuse_unless(
        all(i < len(old) for i in copies), f"shape {list(given)} copies axes that {list(old)} has not"
    )
    shape = [old[i] if i in copies else n for i, n in enumerate(given)]
    if -1 in shape:
        rest = prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = prod(old) // rest if rest else 0
    node.refuse_unless(prod(shape) == prod(old), f"{list(old)} does not fill shape {list(given)}")
    return _reshaped(node, shape)


def _flatten(node: OnnxNode) -> Sequence[Held]:
    shape, axis = node.shape(0), node.attr("axis")
    node.refuse_unless(-len(shape) <= axis <= len(shape), f"axis {axis} of a tensor of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return _reshaped(node, (prod(shape[:axis]), prod(shape[axis:])))


def _squeeze(node: OnnxNode) -> Sequence[Held]:
    shape, axes = node.shape(0), node.ints_of("axes", 1, 13)
    rank = len(shape)
    gone = {i for i, n in enumerate(shape) if n == 1} if axes is None else {node.axis(a, rank) for a in axes}
    node.refuse_unless(
        all(shape[i] == 1 for i in gone), f"axes {sorted(gone)} of {list(shape)} are not all 1 long"
    )
    return _reshaped(node, [n for i, n in enumerate(shape) if i not in gone])


def _unsqueeze(node: OnnxNode) -> Sequence[Held]:
    shape, axes = list(node.shape(0)), node.ints_of("axes", 1, 13) or ()
    rank = len(shape) + len(axes)
    for axis in sorted(node.axis(a, rank) for a in axes):
        shape.insert(axis, 1)
    return _reshaped(node, shape)


def _transpose(node: OnnxNode) -> Sequence[Held]:
    rank = len(node.shape(0))
    perm = tuple(node.attr("perm") or reversed(range(rank)))
    node.refuse_unless(sorted(perm) == list(range(rank)), f"perm {list(perm)} of a tensor of rank {rank}")
    if perm == tuple(range(rank)):
        return [node.input(0)]
    return (
        [node.permuted(0, perm)]
        if node.array_is_constant(0)
        else node.done("Transpose", [node.input(0)], {"perm": perm})
    )


def _concat(node: OnnxNode) -> Sequence[Held]:
    inputs = node.inputs()
    if len(inputs) == 1:
        return inputs
    return node.done("Concat", inputs, {"axis": node.axis(node.attr("axis"), len(node.shape(0)))})


def _split(node: OnnxNode) -> Sequence[Held]:
    axis = node.axis(node.attr("axis"), len(node.shape(0)))
    length, sizes = node.shape(0)[axis], node.ints_of("split", 1, 13)
    if not sizes:
        parts = (node.opset >= 18 and node.attr("num_outputs")) or len(node.proto.output)
        each = -(-length // parts)
        sizes = tuple(max(min(each, length - i * each), 0) for i in range(parts))
    return node.done("Split", [node.input(0)], {"axis": axis, "sizes": sizes})


def _slice(node: OnnxNode) -> Sequence[Held]:
    shape = node.shape(0)
    if node.opset < 10:
        given = [node.attr(key) for key in ("starts", "ends", "axes")] + [None]
    else:
        names = ("starts", "ends", "axes", "steps")
        given = [node.ints(i, what) if node.has(i) else None for i, what in enumerate(names, 1)]
    firsts, lasts, axes, strides = given
    node.refuse_unless(firsts is not None and lasts is not None, "it lacks starts or ends")
    axes = tuple(range(len(firsts))) if axes is None else axes
    strides = strides or (1,) * len(axes)
    starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, first, last, stride in zip(axes, firsts, lasts, strides, strict=True):
        i = node.axis(axis, len(shape))
        node.refuse_unless(stride != 0, "one of its steps is 0")
        span = range(*slice(first, _end(last, stride, shape[i]), stride).indices(shape[i]))
        starts[i], sizes[i], steps[i] = (span.start if span else 0), len(span), stride
    if tuple(sizes) == shape and all(s == 1 for s in steps):
        return [node.input(0)]
    return node.done(
        "Slice", [node.input(0)], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
    )


def _end(last: int, stride: int, length: int) -> int | None:
    """An end as Python's slice has it: what lies before the first element, going backwards, is None there."""
    return None if stride < 0 and last < -length else last


def _pad(node: OnnxNode) -> Sequence[Held]:
    rank = len(node.shape(0))
    pads, value = _pads_and_value(node)
    axes = tuple(range(rank))
    if node.opset >= 18 and node.has(3):
        axes = tuple(node.axis(a, rank) for a in node.ints(3, "axes"))
    node.refuse_unless(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    mode = node.attr("mode")
    node.refuse_unless(mode in PAD_MODES, f"mode {mode!r}")
    grown = {"before": _positive(before), "after": _positive(after), "mode": mode, "value": value}
    cut_before, cut_after = _positive([-n for n in before]), _positive([-n for n in after])
    if not any((*cut_before, *cut_after)):
        return node.done("Pad", [node.input(0)], grown)
    return _cut_then_pad(node, (cut_before, cut_after), grown)


def _cut_then_pad(node: OnnxNode, cuts: tuple[Shape, Shape], grown: Mapping[str, object]) -> Sequence[Held]:
    """Negative pads cut; the cut comes first, so that other modes pad from what is left."""
    sizes = tuple(n - a - b for n, a, b in zip(node.shape(0), *cuts, strict=True))
    node.refuse_unless(min(sizes) >= 0, f"pads cut more than there is of {list(node.shape(0))}")
    cut = node.emit(
        "Slice", [node.input(0)], {"starts": cuts[0], "sizes": sizes, "steps": (1,) * len(sizes)}, tag="cut"
    )
    return node.done("Pad", [cut], grown)


def _positive(numbers: Sequence[int]) -> Shape:
    return tuple(max(n, 0) for n in numbers)


def _pads_and_value(node: OnnxNode) -> tuple[Shape, float]:
    if node.opset < 11:
        return tuple(node.attr("pads")), float(node.attr("value"))
    return node.ints(1, "pads"), float(node.constant(2, "value").reshape(-1)[0]) if node.has(2) else 0.0


def _tile(node: OnnxNode) -> Sequence[Held]:
    return node.done("Tile", [node.input(0)], {"repeats": node.ints(1, "repeats")})


def _expand(node: OnnxNode) -> Sequence[Held]:
    """To the shape that the input's and the given one broadcast to."""
    old, given = node.shape(0), node.ints(1, "shape")
    rank = max(len(old), len(given))
    pairs = zip((1,) * (rank - len(old)) + old, (1,) * (rank - len(given)) + given, strict=True)
    shape = tuple(b if a == 1 else a for a, b in pairs)
    return [node.input(0)] if shape == old else node.done("Expand", [node.input(0)], {"shape": shape})


def _trilu(node: OnnxNode) -> Sequence[Held]:
    (k,) = node.ints(1, "k") if node.has(1) else (0,)
    return node.done("Trilu", [node.input(0)], {"k": k, "upper": bool(node.attr("upper"))})


def _reverse_sequence(node: OnnxNode) -> Sequence[Held]:
    attrs = {"batch_axis": node.attr("batch_axis"), "time_axis": node.attr("time_axis")}
    return node.done("ReverseSequence", [node.input(0), node.input(1)], attrs)


def _depth_to_space(node: OnnxNode) -> Sequence[Held]:
    attrs = {"block": node.attr("blocksize"), "mode": (node.opset >= 11 and node.attr("mode")) or "DCR"}
    return node.channels_first(node.emit("DepthToSpace", [node.channels_last(node.input(0))], attrs))


def _space_to_depth(node: OnnxNode) -> Sequence[Held]:
    block = node.attr("blocksize")
    if node.attr("mode") != "CRD":
        return node.channels_first(
            node.emit("SpaceToDepth", [node.channels_last(node.input(0))], {"block": block})
        )
    batch, channels, height, width = node.shape(0)
    node.refuse_unless(
        height % block == 0 and width % block == 0, f"blocks of {block} do not divide {list(node.shape(0))}"
    )
    split = (batch, channels, height // block, block, width // block, block)
    parts = node.emit("Reshape", [node.input(0)], {"shape": split}, tag="split")
    turned = node.emit("Transpose", [parts], {"perm": (0, 1, 3, 5, 2, 4)}, tag="turned")
    return node.done("Reshape", [turned], {"shape": (batch, channels * block * block, split[2], split[4])})


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
