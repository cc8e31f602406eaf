"""Layers that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType

from mace_frontend_caffe.node import Node
from mace_frontend_caffe.ops import Handler


def _concat(node: Node) -> Sequence[str]:
    p = node.layer.concat_param
    axis = p.concat_dim if p.HasField("concat_dim") else p.axis
    return node.done("Concat", node.inputs(), {"axis": node.axis(axis, len(node.shape()))})


def _slice(node: Node) -> Sequence[str]:
    p, shape, count = node.layer.slice_param, node.shape(), len(node.layer.top)
    axis = node.axis(p.slice_dim if p.HasField("slice_dim") else p.axis, len(shape))
    points = list(p.slice_point) or [shape[axis] // count * i for i in range(1, count)]
    node.refuse_unless(len(points) == count - 1, f"{len(points)} slice points for {count} tops")
    sizes = tuple(b - a for a, b in pairwise([0, *points, shape[axis]]))
    return node.done("Split", [node.input()], {"axis": axis, "sizes": sizes})


def _split(node: Node) -> Sequence[str]:
    return [node.input()] * len(node.layer.top)


def _flatten(node: Node) -> Sequence[str]:
    p, shape = node.layer.flatten_param, node.shape()
    first, last = node.axis(p.axis, len(shape)), node.axis(p.end_axis, len(shape))
    merged = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    return node.done("Reshape", [node.input()], {"shape": merged})


def _reshape(node: Node) -> Sequence[str]:
    """Dimension 0 copies, -1 is what is left; axes before `axis` and after `num_axes` stay."""
    p, shape = node.layer.reshape_param, node.shape()
    first = node.axis(p.axis, len(shape) + 1)
    last = len(shape) if p.num_axes == -1 else first + p.num_axes
    wanted = [shape[first + i] if d == 0 else int(d) for i, d in enumerate(p.shape.dim)]
    node.refuse_unless(wanted.count(-1) <= 1 and min(wanted, default=1) >= -1, f"a new shape of {wanted}")
    middle = prod(shape[first:last])
    known = prod(d for d in wanted if d != -1)
    node.refuse_unless(known > 0 and middle % known == 0, f"{middle} elements in a shape of {wanted}")
    made = (*shape[:first], *(middle // known if d == -1 else d for d in wanted), *shape[last:])
    return node.done("Reshape", [node.input()], {"shape": made})


def _permute(node: Node) -> Sequence[str]:
    order, rank = [int(o) for o in node.layer.permute_param.order], len(node.shape())
    return node.done("Transpose", [node.input()], {"perm": (*order, *(i for i in range(rank) if i not in order))})


def _crop(node: Node) -> Sequence[str]:
    """The first bottom cut to the size of the second, from `axis` on."""
    p, shape, wanted = node.layer.crop_param, node.shape(0), node.shape(1)
    first = node.axis(p.axis, len(shape))
    offsets = list(p.offset)
    starts = [0] * first + (offsets if len(offsets) == len(shape) - first else [offsets[0] if offsets else 0] * (len(shape) - first))
    sizes = (*shape[:first], *wanted[first:])
    return node.done("Slice", [node.input(0)], {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})


def _tile(node: Node) -> Sequence[str]:
    p, rank = node.layer.tile_param, len(node.shape())
    axis = node.axis(p.axis, rank)
    return node.done("Tile", [node.input()], {"repeats": tuple(p.tiles if i == axis else 1 for i in range(rank))})


def _shuffle(node: Node) -> Sequence[str]:
    """Channels of as many groups dealt out one by one."""
    group, shape = int(node.layer.shuffle_channel_param.group), node.shape()
    node.refuse_unless(group > 0 and shape[1] % group == 0, f"{shape[1]} channels in {group} groups")
    split = node.emit("Reshape", [node.input()], {"shape": (shape[0], group, shape[1] // group, *shape[2:])}, tag="groups")
    turned = node.emit("Transpose", [split], {"perm": (0, 2, 1, *range(3, len(shape) + 1))}, tag="dealt")
    return node.done("Reshape", [turned], {"shape": shape})


def _reorg(node: Node) -> Sequence[str]:
    p = node.layer.reorg_param
    op, attrs = ("DepthToSpace", {"mode": "DCR"}) if p.reverse else ("SpaceToDepth", {})
    made = node.emit(op, [node.channels_last(node.input())], {"block": int(p.stride), **attrs})
    return node.channels_first(made)


def _resized(node: Node, size: tuple[int, int], mode: str, coordinates: str) -> Sequence[str]:
    shape = node.shape()
    node.refuse_unless(len(shape) == 4 and min(size) > 0, f"{list(shape)} resized to {list(size)}")
    sizes = (*shape[:2], *size)
    scales = tuple(float(a) / b for a, b in zip(sizes, shape, strict=True))
    attrs = {"sizes": sizes, "scales": scales, "mode": mode, "coordinates": coordinates, "nearest": "floor"}
    return node.done("Resize", [node.input()], attrs)


def _interp(node: Node) -> Sequence[str]:
    """Bilinear, corners on corners; a padding that is negative crops."""
    p, shape = node.layer.interp_param, node.shape()
    node.refuse_unless(p.pad_beg == 0 and p.pad_end == 0, "padding of an interpolation")
    if p.height and p.width:
        size = (int(p.height), int(p.width))
    else:
        shrunk = [(d - 1) // p.shrink_factor + 1 for d in shape[2:]]
        height, width = (d + (d - 1) * (p.zoom_factor - 1) for d in shrunk)
        size = (height, width)
    return _resized(node, size, "linear", "align_corners")


def _upsample(node: Node) -> Sequence[str]:
    p, shape = node.layer.upsample_param, node.shape()
    size = (int(p.height), int(p.width)) if p.height and p.width else (shape[2] * p.scale, shape[3] * p.scale)
    return _resized(node, size, "nearest", "asymmetric")


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
        "ResizeNearest": _upsample,
    }
)
