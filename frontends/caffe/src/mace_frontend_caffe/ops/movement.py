"""Layers that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType

import numpy as np

from mace_frontend_caffe.node import CaffeNode
from mace_frontend_caffe.ops import Handler


def _concat(node: CaffeNode) -> Sequence[str]:
    p = node.layer.concat_param
    axis = p.concat_dim if p.HasField("concat_dim") else p.axis
    return node.done("Concat", node.inputs(), {"axis": node.axis(axis, len(node.shape()))})


def _slice(node: CaffeNode) -> Sequence[str]:
    p, shape, count = node.layer.slice_param, node.shape(), len(node.layer.top)
    axis = node.axis(p.slice_dim if p.HasField("slice_dim") else p.axis, len(shape))
    points = list(p.slice_point) or [shape[axis] // count * i for i in range(1, count)]
    node.refuse_unless(len(points) == count - 1, f"{len(points)} slice points for {count} tops")
    node.refuse_unless(
        bool(p.slice_point) or shape[axis] % count == 0,
        f"{shape[axis]} along axis {axis} in {count} equal parts",
    )
    sizes = tuple(b - a for a, b in pairwise([0, *points, shape[axis]]))
    return node.done("Split", [node.input()], {"axis": axis, "sizes": sizes})


def _split(node: CaffeNode) -> Sequence[str]:
    return [node.input()] * len(node.layer.top)


def _flatten(node: CaffeNode) -> Sequence[str]:
    p, shape = node.layer.flatten_param, node.shape()
    first, last = node.axis(p.axis, len(shape)), node.axis(p.end_axis, len(shape))
    node.refuse_unless(first <= last, f"axes {p.axis} to {p.end_axis}")
    merged = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    return node.done("Reshape", [node.input()], {"shape": merged})


def _reshape(node: CaffeNode) -> Sequence[str]:
    """Dimension 0 copies, -1 is what is left; axes before `axis` and after `num_axes` stay."""
    p, shape = node.layer.reshape_param, node.shape()
    first = node.axis(p.axis, len(shape) + 1)
    last = len(shape) if p.num_axes == -1 else first + p.num_axes
    node.refuse_unless(
        first <= last <= len(shape),
        f"{p.num_axes} axes from axis {p.axis} on, of a blob of rank {len(shape)}",
    )
    copied = [i for i, d in enumerate(p.shape.dim) if d == 0]
    node.refuse_unless(
        first + max(copied, default=-1) < len(shape),
        f"dimension 0 copies one that a blob of rank {len(shape)} has not",
    )
    wanted = [shape[first + i] if d == 0 else int(d) for i, d in enumerate(p.shape.dim)]
    node.refuse_unless(wanted.count(-1) <= 1 and min(wanted, default=1) >= -1, f"a new shape of {wanted}")
    middle = prod(shape[first:last])
    known = prod(d for d in wanted if d != -1)
    node.refuse_unless(known > 0 and middle % known == 0, f"{middle} elements in a shape of {wanted}")
    made = (*shape[:first], *(middle // known if d == -1 else d for d in wanted), *shape[last:])
    return node.done("Reshape", [node.input()], {"shape": made})


def _permute(node: CaffeNode) -> Sequence[str]:
    order, rank = [int(o) for o in node.layer.permute_param.order], len(node.shape())
    return node.done(
        "Transpose", [node.input()], {"perm": (*order, *(i for i in range(rank) if i not in order))}
    )


def _crop(node: CaffeNode) -> Sequence[str]:
    """The first bottom cut to the size of the second, from `axis` on."""
    p, shape, wanted = node.layer.crop_param, node.shape(0), node.shape(1)
    first = node.axis(p.axis, len(shape))
    offsets = [int(o) for o in p.offset]
    cut = len(shape) - first
    node.refuse_unless(
        len(offsets) in (0, 1, cut) and len(wanted) == len(shape), f"{len(offsets)} offsets for {cut} axes"
    )
    starts = [0] * first + (offsets if len(offsets) == cut else [offsets[0] if offsets else 0] * cut)
    sizes = (*shape[:first], *wanted[first:])
    return node.done("Slice", [node.input(0)], {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})


def _tile(node: CaffeNode) -> Sequence[str]:
    p, rank = node.layer.tile_param, len(node.shape())
    axis = node.axis(p.axis, rank)
    return node.done(
        "Tile", [node.input()], {"repeats": tuple(p.tiles if i == axis else 1 for i in range(rank))}
    )


def _shuffle(node: CaffeNode) -> Sequence[str]:
    """Channels of as many groups dealt out one by one."""
    group, shape = int(node.layer.shuffle_channel_param.group), node.shape()
    node.refuse_unless(group > 0 and shape[1] % group == 0, f"{shape[1]} channels in {group} groups")
    split = node.emit(
        "Reshape", [node.input()], {"shape": (shape[0], group, shape[1] // group, *shape[2:])}, tag="groups"
    )
    turned = node.emit("Transpose", [split], {"perm": (0, 2, 1, *range(3, len(shape) + 1))}, tag="dealt")
    return node.done("Reshape", [turned], {"shape": shape})


def _reorg(node: CaffeNode) -> Sequence[str]:
    """Darknet's: its blocks are those of the same numbers read as an image of fewer, larger channels."""
    p, shape = node.layer.reorg_param, node.shape()
    block = int(p.stride)
    node.refuse_unless(not p.reverse, "the reverse direction")
    fits = (
        len(shape) == 4
        and block > 0
        and shape[1] % block**2 == 0
        and shape[2] % block == 0
        and shape[3] % block == 0
    )
    node.refuse_unless(fits, f"a blob of {list(shape)} in blocks of {block}")
    n, channels, height, width = shape
    read = node.emit(
        "Reshape",
        [node.input()],
        {"shape": (n, channels // block**2, height * block, width * block)},
        tag="read",
    )
    made = node.emit("SpaceToDepth", [node.channels_last(read)], {"block": block})
    first = node.emit("Transpose", [made], {"perm": (0, 3, 1, 2)})
    return node.done("Reshape", [first], {"shape": (n, channels * block**2, height // block, width // block)})


def _resized(node: CaffeNode, x: str, size: tuple[int, int], how: tuple[str, str]) -> Sequence[str]:
    """Another size of x; how: mode and coordinates."""
    shape = node.builder.shape(x)
    node.refuse_unless(len(shape) == 4 and min(size) > 0, f"{list(shape)} resized to {list(size)}")
    sizes = (*shape[:2], *size)
    scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
    attrs = {"sizes": sizes, "scales": scales, "mode": how[0], "coordinates": how[1], "nearest": "floor"}
    return node.done("Resize", [x], attrs)


def _interp(node: CaffeNode) -> Sequence[str]:
    """Bilinear, corners on corners, of what a negative padding leaves (DeepLab's)."""
    p, shape, x = node.layer.interp_param, node.shape(), node.input()
    node.refuse_unless(len(shape) == 4, f"its bottom has rank {len(shape)}; it needs 4")
    left = tuple(d + p.pad_beg + p.pad_end for d in shape[2:])
    fits = p.pad_beg <= 0 and p.pad_end <= 0 and min(left) > 0 and p.shrink_factor > 0 and p.zoom_factor > 0
    node.refuse_unless(
        fits,
        f"{list(shape[2:])} padded by {p.pad_beg} and {p.pad_end}, shrunk {p.shrink_factor}, zoomed {p.zoom_factor}",
    )
    if p.pad_beg or p.pad_end:
        starts = (0, 0, -p.pad_beg, -p.pad_beg)
        x = node.emit(
            "Slice", [x], {"starts": starts, "sizes": (*shape[:2], *left), "steps": (1,) * 4}, tag="cropped"
        )
    shrunk = [(d - 1) // p.shrink_factor + 1 for d in left]
    height, width = (d + (d - 1) * (p.zoom_factor - 1) for d in shrunk)
    size = (int(p.height), int(p.width)) if p.height and p.width else (height, width)
    return _resized(node, x, size, ("linear", "align_corners"))


def _upsample(node: CaffeNode) -> Sequence[str]:
    p, shape = node.layer.upsample_param, node.shape()
    node.refuse_unless(len(shape) == 4, f"its bottom has rank {len(shape)}; it needs 4")
    size = (p.height or p.upsample_h or shape[2] * p.scale, p.width or p.upsample_w or shape[3] * p.scale)
    return (
        _unpooled(node, size)
        if node.count > 1
        else _resized(node, node.input(), size, ("nearest", "asymmetric"))
    )


def _unpooled(node: CaffeNode, size: tuple[int, int]) -> Sequence[str]:
    """Each number where MAX pooling found it, zeros around (V. Badrinarayanan et al., "SegNet", 2015)."""
    shape = node.shape()
    node.refuse_unless(
        node.shape(1) == shape and min(size) > 0, f"places of shape {list(node.shape(1))} for {list(shape)}"
    )
    flat = (*shape[:2], prod(shape[2:]))
    places = node.emit(
        "Cast", [node.emit("Reshape", [node.input(1)], {"shape": flat})], {"to": "i64"}, tag="places"
    )
    values = node.emit("Reshape", [node.input()], {"shape": flat})
    zeros = node.emit(
        "Expand", [node.add_float(np.zeros((1, 1, 1)), "zero")], {"shape": (*shape[:2], prod(size))}
    )
    made = node.emit("ScatterElements", [zeros, places, values], {"axis": 2})
    return node.done("Reshape", [made], {"shape": (*shape[:2], *size)})


def _resize_nearest(node: CaffeNode) -> Sequence[str]:
    p, shape = node.layer.resize_nearest_param, node.shape()
    node.refuse_unless(len(shape) == 4, f"its bottom has rank {len(shape)}; it needs 4")
    return _resized(
        node,
        node.input(),
        (int(shape[2] * p.height_scale), int(shape[3] * p.width_scale)),
        ("nearest", "asymmetric"),
    )


def _batch_reindex(node: CaffeNode) -> Sequence[str]:
    places = node.emit("Cast", [node.input(1)], {"to": "i64"}, tag="places")
    return node.done("Gather", [node.input(0), places], {"axis": 0})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Concat": _concat,
        "Slice": _slice,
        "Split": _split,
        "Flatten": _flatten,
        "Reshape": _reshape,
        "Permute": _permute,
        "Crop": _crop,
        "Tile": _tile,
        "ShuffleChannel": _shuffle,
        "Reorg": _reorg,
        "Interp": _interp,
        "Upsample": _upsample,
        "ResizeNearest": _resize_nearest,
        "BatchReindex": _batch_reindex,
    }
)
