"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.decompositions import (
    StridedSlice,
    batch_to_space,
    nearest_places,
    nearest_resize,
    space_to_batch,
)
from mace_core.ir import DType, Shape
from mace_core.ops.resize import ResizeAttributes
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MAX_PLACES = 1 << 20
"""Limit of the elements of a constant that a handler here adds, which the size of the file does not limit.

Below 2^22 single precision is exact enough for `nearest_places` to count every element.
"""


def _transpose(node: TfliteNode) -> Sequence[str]:
    perm = node.ints(1, "permutation")
    # Negative axes count from the end.
    return node.done("Transpose", [node.input(0)], {"perm": tuple(p % len(perm) for p in perm)})


def _concatenation(node: TfliteNode) -> Sequence[str]:
    options = node.options("ConcatenationOptions")
    inputs = node.inputs()
    attrs = {"axis": node.axis(int(options.Axis()), len(node.shape(0)))}
    return node.done_with_activation("Concat", inputs, attrs, options.FusedActivationFunction())


def _pack(node: TfliteNode) -> Sequence[str]:
    axis = node.axis(int(node.options("PackOptions").Axis()), len(node.shape(0)) + 1)
    shape = list(node.shape(0))
    shape.insert(axis, 1)
    parts = [node.emit("Reshape", [x], {"shape": tuple(shape)}, tag="part") for x in node.inputs()]
    return node.done("Concat", parts, {"axis": axis})


def _unpack(node: TfliteNode) -> Sequence[str]:
    shape = node.shape(0)
    axis = node.axis(int(node.options("UnpackOptions").Axis()), len(shape))
    node.require_consistent(
        shape[axis] == len(node.operator.outputs),
        f"it has {shape[axis]} parts for {len(node.operator.outputs)} results",
    )
    one = tuple(1 if i == axis else d for i, d in enumerate(shape))
    rest = {"shape": (*shape[:axis], *shape[axis + 1 :])}
    parts = []
    for i in range(shape[axis]):
        starts = tuple(i if a == axis else 0 for a in range(len(shape)))
        attrs = {"starts": starts, "sizes": one, "steps": (1,) * len(shape)}
        part = node.emit("Slice", [node.input(0)], attrs, tag="part")
        parts.append(node.emit("Reshape", [part], rest, tag=f"part{i}"))
    return parts


def _split(node: TfliteNode) -> Sequence[str]:
    """Add SPLIT(axis, x) into equal parts."""
    shape, count = node.shape(1), int(node.options("SplitOptions").NumSplits())
    axis = node.axis(node.ints(0, "axis")[0], len(shape))
    fits = 0 < count == len(node.operator.outputs) and shape[axis] % count == 0
    node.require_consistent(
        fits, f"it splits {shape[axis]} elements in {count} parts for {len(node.operator.outputs)} results"
    )
    return node.done("Split", [node.input(1)], {"axis": axis, "sizes": (shape[axis] // count,) * count})


def _split_v(node: TfliteNode) -> Sequence[str]:
    """Add SPLIT_V(x, sizes, axis)."""
    shape, sizes = node.shape(0), list(node.ints(1, "sizes"))
    axis = node.axis(node.ints(2, "axis")[0], len(shape))
    # One size may be -1: what the others leave.
    if -1 in sizes:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    return node.done("Split", [node.input(0)], {"axis": axis, "sizes": tuple(sizes)})


def _slice(node: TfliteNode) -> Sequence[str]:
    shape, starts, sizes = node.shape(0), node.ints(1, "begin"), node.ints(2, "size")
    # A size of -1 reaches to the end of the axis.
    sizes = tuple(d - b if s == -1 else s for d, b, s in zip(shape, starts, sizes, strict=True))
    return node.done("Slice", [node.input(0)], {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})


def _strided_slice(node: TfliteNode) -> Sequence[str]:
    """Add STRIDED_SLICE(x, begin, end, strides)."""
    options = node.options("StridedSliceOptions")
    begin, end, strides = node.ints(1, "begin"), node.ints(2, "end"), node.ints(3, "strides")
    if options.Offset():
        end = _ends_of_offsets(node, begin, end)
    masks = (
        options.BeginMask(),
        options.EndMask(),
        options.EllipsisMask(),
        options.NewAxisMask(),
        options.ShrinkAxisMask(),
    )
    return node.done_steps(StridedSlice(begin, end, strides, *masks).steps(node.shape(0)), node.input(0))


def _ends_of_offsets(node: TfliteNode, begin: Shape, offsets: Shape) -> Shape:
    """Return the ends of ranges that the file states relative to their begins."""
    node.require_consistent(
        len(begin) == len(offsets), f"it has begins {list(begin)} and offsets {list(offsets)}"
    )
    return tuple(first + offset for first, offset in zip(begin, offsets, strict=True))


def _pad(node: TfliteNode) -> Sequence[str]:
    pads = _pairs(node, 1, "pads")
    attrs = {"before": tuple(low for low, _ in pads), "after": tuple(high for _, high in pads)}
    value: int | float = 0.0
    if node.has(2):
        # An integer stays one: a float does not hold every integer of 64 bits.
        value = node.constant(2, "value").reshape(()).item()
        quant = node.info(2).quant
        # The value is stored like the input; the IR's attribute is the real number.
        value = (value - quant.zero_point[0]) * quant.scale[0] if quant else value
    return node.done("Pad", [node.input(0)], {**attrs, "value": value})


def _mirror_pad(node: TfliteNode) -> Sequence[str]:
    pads = _pairs(node, 1, "pads")
    before, after = (tuple(pair[i] for pair in pads) for i in range(2))
    if node.options("MirrorPadOptions").Mode() == tflite.MirrorPadMode.REFLECT:
        return node.done("Pad", [node.input(0)], {"before": before, "after": after, "mode": "reflect"})
    # An element is mirrored at most once, so no padding is longer than its axis.
    shape = node.shape(0)
    fits = all(0 <= min(pair) <= max(pair) <= size for pair, size in zip(pads, shape, strict=False))
    node.require_consistent(
        len(pads) == len(shape) and fits, f"it has paddings of {pads} around {list(shape)}"
    )
    return _symmetric(node, before, after)


def _symmetric(node: TfliteNode, before: Shape, after: Shape) -> Sequence[str]:
    """Add a pad that mirrors the edge as well, which the IR's Pad does not: by a Gather for each axis."""
    x = node.input(0)
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if low or high:
            numbers = np.arange(node.shape(0)[axis], dtype=np.int64)
            mirrored = np.pad(numbers, (int(low), int(high)), mode="symmetric")
            places = node.add_constant(mirrored, tag="places")
            x = node.emit("Gather", [x, places], {"axis": axis}, tag="mirrored")
    return node.done("Identity", [x])


def _tile(node: TfliteNode) -> Sequence[str]:
    return node.done("Tile", [node.input(0)], {"repeats": node.ints(1, "multiples")})


def _to_space(node: TfliteNode) -> Sequence[str]:
    # DCR: the block's row and column come before the channel in the depth, as TensorFlow has it.
    attrs = {"block": int(node.options("DepthToSpaceOptions").BlockSize()), "mode": "DCR"}
    return node.done("DepthToSpace", [node.input(0)], attrs)


def _to_depth(node: TfliteNode) -> Sequence[str]:
    attrs = {"block": int(node.options("SpaceToDepthOptions").BlockSize())}
    return node.done("SpaceToDepth", [node.input(0)], attrs)


def _pairs(node: TfliteNode, index: int, meaning: str) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in node.constant(index, meaning).reshape(-1, 2)]


def _batch_to_space(node: TfliteNode) -> Sequence[str]:
    """Add BATCH_TO_SPACE_ND(x, block, crops)."""
    steps = batch_to_space(node.shape(0), node.ints(1, "block"), _pairs(node, 2, "crops"))
    return node.done_steps(steps, node.input(0))


def _space_to_batch(node: TfliteNode) -> Sequence[str]:
    """Add SPACE_TO_BATCH_ND(x, block, pads)."""
    steps = space_to_batch(node.shape(0), node.ints(1, "block"), _pairs(node, 2, "pads"))
    return node.done_steps(steps, node.input(0))


def _resize(mode: str, kind: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        options, shape, size = node.options(kind), node.shape(0), node.ints(1, "size")
        node.require_consistent(
            len(shape) == 4 and len(size) == 2 and 0 not in shape, f"it resizes {list(shape)} to {list(size)}"
        )
        sizes = (shape[0], *size, shape[3])
        corners, half = options.AlignCorners(), options.HalfPixelCenters()
        scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
        if mode == "nearest":
            return _resize_nearest(node, ResizeAttributes(sizes, scales), (corners, half))
        # Without either option the first pixels lie upon each other, as TensorFlow 1 resized.
        coordinates = "half_pixel" if half else "asymmetric"
        if corners:
            coordinates = "align_corners"
        attrs = {"sizes": sizes, "scales": scales, "mode": mode, "coordinates": coordinates}
        return node.done("Resize", [node.input(0)], attrs)

    return handle


def _resize_nearest(node: TfliteNode, attrs: ResizeAttributes, options: tuple[bool, bool]) -> Sequence[str]:
    """Add the nearest elements, by a Resize where it selects the same ones, else by a Gather for each axis.

    options: whether corners lie on corners, and whether coordinates count from the centers of pixels.
    """
    shape = node.shape(0)
    fits = min(attrs.sizes) >= 0 and max(attrs.sizes) <= MAX_PLACES
    node.require_consistent(fits, f"it has a size of {list(attrs.sizes)}")
    if resize := nearest_resize(attrs, shape, *options):
        return node.done("Resize", [node.input(0)], resize)
    x = node.input(0)
    for axis in (1, 2):
        places = node.add_constant(nearest_places(shape[axis], attrs.sizes[axis], *options), tag="places")
        x = node.emit("Gather", [x, places], {"axis": axis}, tag="resized")
    return node.done("Identity", [x])


def _reverse(node: TfliteNode) -> Sequence[str]:
    shape, axes = node.shape(0), {a % len(node.shape(0)) for a in node.ints(1, "axes")}
    starts = tuple(d - 1 if i in axes else 0 for i, d in enumerate(shape))
    steps = tuple(-1 if i in axes else 1 for i in range(len(shape)))
    return node.done("Slice", [node.input(0)], {"starts": starts, "sizes": shape, "steps": steps})


def _reverse_sequence(node: TfliteNode) -> Sequence[str]:
    options = node.options("ReverseSequenceOptions")
    attrs = {"batch_axis": int(options.BatchDim()), "time_axis": int(options.SeqDim())}
    return node.done("ReverseSequence", [node.input(0), node.input(1)], attrs)


def _one_hot(node: TfliteNode) -> Sequence[str]:
    depth = node.ints(1, "depth")[0]
    # Inputs are (indices, depth, on, off); the IR's op takes [off, on], as ONNX's does.
    values = [node.emit("Reshape", [node.input(i)], {"shape": (1,)}, tag="value") for i in (3, 2)]
    pair = node.emit("Concat", values, {"axis": 0}, tag="values")
    attrs = {"depth": depth, "axis": int(node.options("OneHotOptions").Axis())}
    indices = node.stored_input(0)
    dtype = node.tensor(indices).dtype
    # The IR's op counts negative indices from the end, the kernel has no element for them: as for the depth.
    if not dtype.value.startswith("u"):
        zero, limit = (node.add_constant(np.asarray(n, dtype.numpy), tag="limit") for n in (0, depth))
        below = node.emit("Less", [indices, zero], tag="below")
        indices = node.emit("Where", [below, limit, indices], tag="indices")
    return node.done("OneHot", [indices, pair], attrs)


def _top_k(node: TfliteNode) -> Sequence[str]:
    k = node.ints(1, "k")[0]
    values, places = node.done("TopK", [node.input(0)], {"k": k})
    # The IR's numbers have 64 bits, the format's those of the output, mostly 32.
    dtype = node.output(1).dtype or DType.I32
    return [values, node.emit("Cast", [places], {"to": dtype.value}, tag="places")]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "TRANSPOSE": _transpose,
        "CONCATENATION": _concatenation,
        "PACK": _pack,
        "UNPACK": _unpack,
        "SPLIT": _split,
        "SPLIT_V": _split_v,
        "SLICE": _slice,
        "STRIDED_SLICE": _strided_slice,
        "PAD": _pad,
        "PADV2": _pad,
        "MIRROR_PAD": _mirror_pad,
        "TILE": _tile,
        "DEPTH_TO_SPACE": _to_space,
        "SPACE_TO_DEPTH": _to_depth,
        "BATCH_TO_SPACE_ND": _batch_to_space,
        "SPACE_TO_BATCH_ND": _space_to_batch,
        "RESIZE_BILINEAR": _resize("linear", "ResizeBilinearOptions"),
        "RESIZE_NEAREST_NEIGHBOR": _resize("nearest", "ResizeNearestNeighborOptions"),
        "REVERSE_V2": _reverse,
        "REVERSE_SEQUENCE": _reverse_sequence,
        "ONE_HOT": _one_hot,
        "TOPK_V2": _top_k,
    }
)
