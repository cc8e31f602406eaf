"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.decompositions import StridedSlice, batch_to_space, space_to_batch
from mace_core.ir import DType, Shape
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

MOST_PLACES = 1 << 24
"""Elements of a constant made here."""


def _transpose(node: TfliteNode) -> Sequence[str]:
    perm = node.ints(1, "permutation")
    return node.done("Transpose", [node.input(0)], {"perm": tuple(p % max(len(perm), 1) for p in perm)})


def _concatenation(node: TfliteNode) -> Sequence[str]:
    options = node.options("ConcatenationOptions")
    inputs = node.inputs()
    attrs = {"axis": node.axis(int(options.Axis()), len(node.shape(0)))}
    return node.fused("Concat", inputs, attrs, options.FusedActivationFunction())


def _pack(node: TfliteNode) -> Sequence[str]:
    axis = node.axis(int(node.options("PackOptions").Axis()), len(node.shape(0)) + 1)
    shape = list(node.shape(0))
    shape.insert(axis, 1)
    parts = [node.emit("Reshape", [x], {"shape": tuple(shape)}, tag="part") for x in node.inputs()]
    return node.done("Concat", parts, {"axis": axis})


def _unpack(node: TfliteNode) -> Sequence[str]:
    shape = node.shape(0)
    axis = node.axis(int(node.options("UnpackOptions").Axis()), len(shape))
    node.refuse_unless(
        shape[axis] == len(node.operator.outputs),
        f"{shape[axis]} parts for {len(node.operator.outputs)} results",
    )
    one = tuple(1 if i == axis else d for i, d in enumerate(shape))
    made = []
    for i in range(shape[axis]):
        starts = tuple(i if a == axis else 0 for a in range(len(shape)))
        part = node.emit(
            "Slice", [node.input(0)], {"starts": starts, "sizes": one, "steps": (1,) * len(shape)}, tag="part"
        )
        made.append(
            node.emit(
                "Reshape",
                [part],
                {"shape": tuple(d for a, d in enumerate(shape) if a != axis)},
                tag=f"part{i}",
            )
        )
    return made


def _split(node: TfliteNode) -> Sequence[str]:
    """SPLIT(axis, x) into equal parts."""
    shape, count = node.shape(1), int(node.options("SplitOptions").NumSplits())
    axis = node.axis(node.ints(0, "axis")[0], len(shape))
    fits = 0 < count == len(node.operator.outputs) and shape[axis] % count == 0
    node.refuse_unless(
        fits, f"{shape[axis]} elements in {count} parts for {len(node.operator.outputs)} results"
    )
    return node.done("Split", [node.input(1)], {"axis": axis, "sizes": (shape[axis] // count,) * count})


def _split_v(node: TfliteNode) -> Sequence[str]:
    """SPLIT_V(x, sizes, axis)."""
    shape, sizes = node.shape(0), list(node.ints(1, "sizes"))
    axis = node.axis(node.ints(2, "axis")[0], len(shape))
    if -1 in sizes:
        sizes[sizes.index(-1)] = shape[axis] - sum(s for s in sizes if s >= 0)
    return node.done("Split", [node.input(0)], {"axis": axis, "sizes": tuple(sizes)})


def _slice(node: TfliteNode) -> Sequence[str]:
    shape, starts, sizes = node.shape(0), node.ints(1, "begin"), node.ints(2, "size")
    whole = tuple(d - b if s == -1 else s for d, b, s in zip(shape, starts, sizes, strict=True))
    return node.done("Slice", [node.input(0)], {"starts": starts, "sizes": whole, "steps": (1,) * len(shape)})


def _strided_slice(node: TfliteNode) -> Sequence[str]:
    """STRIDED_SLICE(x, begin, end, strides)."""
    p = node.options("StridedSliceOptions")
    begin, end, strides = (node.ints(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides")))
    masks = (p.BeginMask(), p.EndMask(), p.EllipsisMask(), p.NewAxisMask(), p.ShrinkAxisMask())
    return node.done_steps(StridedSlice(begin, end, strides, *masks).steps(node.shape(0)), node.input(0))


def _pad(node: TfliteNode) -> Sequence[str]:
    pads = _pairs(node, 1, "pads")
    attrs = {"before": tuple(low for low, _ in pads), "after": tuple(high for _, high in pads)}
    value = 0.0
    if node.has(2):
        value = float(node.constant(2, "value").reshape(()))
        quant = node.info(2).quant
        value = (value - quant.zero_point[0]) * quant.scale[0] if quant else value
    return node.done("Pad", [node.input(0)], {**attrs, "value": value})


def _mirror_pad(node: TfliteNode) -> Sequence[str]:
    pads = _pairs(node, 1, "pads")
    before, after = (tuple(pair[i] for pair in pads) for i in range(2))
    if node.options("MirrorPadOptions").Mode() == tflite.MirrorPadMode.REFLECT:
        return node.done("Pad", [node.input(0)], {"before": before, "after": after, "mode": "reflect"})
    fits = len(pads) == len(node.shape(0)) and all(
        0 <= p <= d for pair, d in zip(pads, node.shape(0), strict=False) for p in pair
    )
    node.refuse_unless(fits, f"paddings of {pads} around {list(node.shape(0))}")
    return _symmetric(node, before, after)


def _symmetric(node: TfliteNode, before: Shape, after: Shape) -> Sequence[str]:
    """Mirrored with the edge itself: rows looked up axis by axis."""
    x = node.input(0)
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if low or high:
            places = np.pad(np.arange(node.shape(0)[axis]), (int(low), int(high)), mode="symmetric").astype(
                np.int64
            )
            x = node.emit(
                "Gather", [x, node.add_constant(places, tag="places")], {"axis": axis}, tag="mirrored"
            )
    return node.done("Identity", [x])


def _tile(node: TfliteNode) -> Sequence[str]:
    return node.done("Tile", [node.input(0)], {"repeats": node.ints(1, "multiples")})


def _to_space(node: TfliteNode) -> Sequence[str]:
    return node.done(
        "DepthToSpace",
        [node.input(0)],
        {"block": int(node.options("DepthToSpaceOptions").BlockSize()), "mode": "DCR"},
    )


def _to_depth(node: TfliteNode) -> Sequence[str]:
    return node.done(
        "SpaceToDepth", [node.input(0)], {"block": int(node.options("SpaceToDepthOptions").BlockSize())}
    )


def _pairs(node: TfliteNode, index: int, what: str) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in node.constant(index, what).reshape(-1, 2)]


def _batch_to_space(node: TfliteNode) -> Sequence[str]:
    """BATCH_TO_SPACE_ND(x, block, crops)."""
    return node.done_steps(
        batch_to_space(node.shape(0), node.ints(1, "block"), _pairs(node, 2, "crops")), node.input(0)
    )


def _space_to_batch(node: TfliteNode) -> Sequence[str]:
    """SPACE_TO_BATCH_ND(x, block, pads)."""
    return node.done_steps(
        space_to_batch(node.shape(0), node.ints(1, "block"), _pairs(node, 2, "pads")), node.input(0)
    )


def _resize(mode: str, kind: str) -> Handler:
    def handle(node: TfliteNode) -> Sequence[str]:
        options, shape, wanted = node.options(kind), node.shape(0), node.ints(1, "size")
        node.refuse_unless(
            len(shape) == 4 and len(wanted) == 2 and 0 not in shape, f"{list(shape)} to {list(wanted)}"
        )
        sizes = (shape[0], *wanted, shape[3])
        corners, half = options.AlignCorners(), options.HalfPixelCenters()
        scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
        if mode == "nearest" and half and not corners:
            return _nearest_centers(node, sizes)
        coordinates = "align_corners" if corners else "half_pixel" if half else "asymmetric"
        nearest = "round_prefer_ceil" if corners else "floor"
        attrs = {
            "sizes": sizes,
            "scales": scales,
            "mode": mode,
            "coordinates": coordinates,
            "nearest": nearest,
        }
        return node.done("Resize", [node.input(0)], attrs)

    return handle


def _nearest_centers(node: TfliteNode, sizes: Shape) -> Sequence[str]:
    """The element in which floor((i + 0.5) * size / new size) lies: rows looked up axis by axis."""
    x, shape = node.input(0), node.shape(0)
    for axis in (1, 2):
        node.refuse_unless(0 <= sizes[axis] <= MOST_PLACES, f"a size of {list(sizes)}")
        centers = (np.arange(sizes[axis], dtype=np.float32) + np.float32(0.5)) * (
            np.float32(shape[axis]) / np.float32(max(sizes[axis], 1))
        )
        places = np.minimum(np.floor(centers).astype(np.int64), shape[axis] - 1)
        x = node.emit("Gather", [x, node.add_constant(places, tag="places")], {"axis": axis}, tag="resized")
    return node.done("Identity", [x])


def _reverse(node: TfliteNode) -> Sequence[str]:
    shape, axes = node.shape(0), {a % len(node.shape(0)) for a in node.ints(1, "axes")}
    starts = tuple(d - 1 if i in axes else 0 for i, d in enumerate(shape))
    return node.done(
        "Slice",
        [node.input(0)],
        {"starts": starts, "sizes": shape, "steps": tuple(-1 if i in axes else 1 for i in range(len(shape)))},
    )


def _reverse_sequence(node: TfliteNode) -> Sequence[str]:
    options = node.options("ReverseSequenceOptions")
    attrs = {"batch_axis": int(options.BatchDim()), "time_axis": int(options.SeqDim())}
    return node.done("ReverseSequence", [node.input(0), node.input(1)], attrs)


def _one_hot(node: TfliteNode) -> Sequence[str]:
    depth = node.ints(1, "depth")[0]
    values = [node.emit("Reshape", [node.input(i)], {"shape": (1,)}, tag="value") for i in (3, 2)]
    pair = node.emit("Concat", values, {"axis": 0}, tag="values")
    return node.done(
        "OneHot", [node.stored(0), pair], {"depth": depth, "axis": int(node.options("OneHotOptions").Axis())}
    )


def _top_k(node: TfliteNode) -> Sequence[str]:
    k = node.ints(1, "k")[0]
    values, places = node.done("TopK", [node.input(0)], {"k": k})
    made = node.output(1).dtype or DType.I32
    return [values, node.emit("Cast", [places], {"to": made.value}, tag="places")]


def _identity(node: TfliteNode) -> Sequence[str]:
    return node.done("Identity", [node.input(0)])


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
        "COPY": _identity,
    }
)
