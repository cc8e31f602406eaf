"""Layers that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType

import numpy as np

from mace_frontend_caffe.node import CUT_BEFORE, CaffeNode
from mace_frontend_caffe.ops import Handler


def _concat(node: CaffeNode) -> Sequence[str]:
    parameters = node.layer.concat_param
    # `concat_dim` and `slice_dim` are the names of 2014; where a file has them, Caffe reads them before
    # `axis`.
    axis = parameters.concat_dim if parameters.HasField("concat_dim") else parameters.axis
    return node.done("Concat", node.inputs(), {"axis": node.axis(axis, len(node.shape()))})


def _slice(node: CaffeNode) -> Sequence[str]:
    parameters, shape, count = node.layer.slice_param, node.shape(), len(node.layer.top)
    axis = node.axis(
        parameters.slice_dim if parameters.HasField("slice_dim") else parameters.axis, len(shape)
    )
    # Without slice points Caffe cuts equal parts, and refuses a remainder (slice_layer.cpp).
    points = list(parameters.slice_point) or [shape[axis] // count * i for i in range(1, count)]
    node.refuse_unless(len(points) == count - 1, f"it has {len(points)} slice points for {count} tops")
    node.refuse_unless(
        bool(parameters.slice_point) or shape[axis] % count == 0,
        f"its axis {axis} of {shape[axis]} elements cannot be cut into {count} equal parts",
    )
    sizes = tuple(end - start for start, end in pairwise([0, *points, shape[axis]]))
    return node.done("Split", [node.input()], {"axis": axis, "sizes": sizes})


def _split(node: CaffeNode) -> Sequence[str]:
    """Return the bottom for every top: Caffe copies it for each reader, but the IR shares tensors."""
    return [node.input()] * len(node.layer.top)


def _flatten(node: CaffeNode) -> Sequence[str]:
    parameters, shape = node.layer.flatten_param, node.shape()
    first, last = node.axis(parameters.axis, len(shape)), node.axis(parameters.end_axis, len(shape))
    node.refuse_unless(first <= last, f"it flattens the axes from {parameters.axis} to {parameters.end_axis}")
    merged = (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])
    return node.done("Reshape", [node.input()], {"shape": merged})


def _reshape(node: CaffeNode) -> Sequence[str]:
    """Reshape `num_axes` axes from `axis` on; a dimension of 0 copies one, and -1 is what is left."""
    parameters, shape = node.layer.reshape_param, node.shape()
    dims = parameters.shape.dim
    # An axis behind the last is allowed: the new dimensions are then appended. So -1 is that place, not the
    # last axis.
    first = node.axis(parameters.axis, len(shape) + 1)
    last = len(shape) if parameters.num_axes == -1 else first + parameters.num_axes
    node.refuse_unless(
        first <= last <= len(shape),
        f"it reshapes {parameters.num_axes} axes from axis {parameters.axis} on "
        f"of a bottom of rank {len(shape)}",
    )
    copied = [i for i, dim in enumerate(dims) if dim == 0]
    node.refuse_unless(
        first + max(copied, default=-1) < len(shape),
        f"a dimension of 0 copies one that a bottom of rank {len(shape)} lacks",
    )
    sizes = [shape[first + i] if dim == 0 else int(dim) for i, dim in enumerate(dims)]
    node.refuse_unless(sizes.count(-1) <= 1 and min(sizes, default=1) >= -1, f"its new shape is {sizes}")
    elements = prod(shape[first:last])
    known = prod(size for size in sizes if size != -1)
    node.refuse_unless(
        known > 0 and elements % known == 0, f"{elements} elements do not fill a shape of {sizes}"
    )
    sizes = [elements // known if size == -1 else size for size in sizes]
    return node.done("Reshape", [node.input()], {"shape": (*shape[:first], *sizes, *shape[last:])})


def _permute(node: CaffeNode) -> Sequence[str]:
    """Permute the axes.

    Axes that the order does not name follow behind, sorted, as in permute_layer.cpp of SSD.
    """
    order, rank = [int(axis) for axis in node.layer.permute_param.order], len(node.shape())
    rest = [axis for axis in range(rank) if axis not in order]
    return node.done("Transpose", [node.input()], {"perm": (*order, *rest)})


def _crop(node: CaffeNode) -> Sequence[str]:
    """Cut the first bottom to the sizes of the second, from `axis` on."""
    parameters, shape, sizes = node.layer.crop_param, node.shape(0), node.shape(1)
    first = node.axis(parameters.axis, len(shape))
    offsets = [int(offset) for offset in parameters.offset]
    count = len(shape) - first
    node.refuse_unless(
        len(offsets) in (0, 1, count) and len(sizes) == len(shape),
        f"it has {len(offsets)} offsets for {count} axes",
    )
    # A single offset holds for all the axes, none stands for 0 (crop_layer.cpp).
    if len(offsets) != count:
        offsets = (offsets or [0]) * count
    starts = (*(0,) * first, *offsets)
    attrs = {"starts": starts, "sizes": (*shape[:first], *sizes[first:]), "steps": (1,) * len(shape)}
    return node.done("Slice", [node.input(0)], attrs)


def _tile(node: CaffeNode) -> Sequence[str]:
    parameters, rank = node.layer.tile_param, len(node.shape())
    axis = node.axis(parameters.axis, rank)
    repeats = tuple(parameters.tiles if i == axis else 1 for i in range(rank))
    return node.done("Tile", [node.input()], {"repeats": repeats})


def _shuffle_channel(node: CaffeNode) -> Sequence[str]:
    """Deal the channels of the groups one by one, as X. Zhang et al., "ShuffleNet", 2018."""
    group, shape = int(node.layer.shuffle_channel_param.group), node.shape()
    node.refuse_unless(
        group > 0 and shape[1] % group == 0, f"{shape[1]} channels cannot be cut into {group} groups"
    )
    split_shape = (shape[0], group, shape[1] // group, *shape[2:])
    split = node.emit("Reshape", [node.input()], {"shape": split_shape}, tag="groups")
    dealt = node.emit("Transpose", [split], {"perm": (0, 2, 1, *range(3, len(shape) + 1))}, tag="dealt")
    return node.done("Reshape", [dealt], {"shape": shape})


def _reorg(node: CaffeNode) -> Sequence[str]:
    """Move blocks of pixels into channels, in the order of Darknet's YOLOv2.

    Darknet confused the two directions: it reads the numbers of its input as an image of fewer channels and
    more pixels, and takes the blocks of that. Networks are trained with this order, so that it must be kept.
    """
    parameters, shape = node.layer.reorg_param, node.shape()
    block = int(parameters.stride)
    node.refuse_unless(not parameters.reverse, "it reorders in the reverse direction", CUT_BEFORE)
    fits = (
        len(shape) == 4
        and block > 0
        and shape[1] % block**2 == 0
        and shape[2] % block == 0
        and shape[3] % block == 0
    )
    node.refuse_unless(fits, f"a bottom of shape {list(shape)} cannot be cut into blocks of {block}")
    n, channels, height, width = shape
    wide = (n, channels // block**2, height * block, width * block)
    image = node.emit("Reshape", [node.input()], {"shape": wide}, tag="read")
    blocks = node.emit("SpaceToDepth", [node.channels_last(image)], {"block": block})
    channels_first = node.emit("Transpose", [blocks], {"perm": (0, 3, 1, 2)})
    result_shape = (n, channels * block**2, height // block, width // block)
    return node.done("Reshape", [channels_first], {"shape": result_shape})


def _resize(node: CaffeNode, x: str, size: tuple[int, int], rule: tuple[str, str]) -> Sequence[str]:
    """Add x [N, C, H, W] resized to height and width; rule: the mode and the coordinates of the op Resize."""
    shape = node.builder.shape(x)
    node.refuse_unless(
        len(shape) == 4 and min(size) > 0, f"a blob of shape {list(shape)} is resized to {list(size)}"
    )
    sizes = (*shape[:2], *size)
    scales = tuple(float(after) / before for after, before in zip(sizes, shape, strict=True))
    mode, coordinates = rule
    # Caffe's nearest layers divide the integer position by the scale, which cuts off.
    attrs = {
        "sizes": sizes,
        "scales": scales,
        "mode": mode,
        "coordinates": coordinates,
        "nearest": "floor",
    }
    return node.done("Resize", [x], attrs)


def _interp(node: CaffeNode) -> Sequence[str]:
    """Interpolate linearly, corners on corners (interp_layer.cpp of DeepLab).

    Its padding may only be negative, and then crops the bottom first. The size is that of a second bottom
    if there is one. Else a factor that is stated alone comes before `height` and `width`, and both factors
    come behind them.
    """
    parameters, shape, x = node.layer.interp_param, node.shape(), node.input()
    _require_image(node)
    cropped = tuple(d + parameters.pad_beg + parameters.pad_end for d in shape[2:])
    is_cropping = parameters.pad_beg <= 0 and parameters.pad_end <= 0 and min(cropped) > 0
    node.refuse_unless(
        is_cropping and parameters.shrink_factor > 0 and parameters.zoom_factor > 0,
        f"its bottom of {list(shape[2:])} is padded by {parameters.pad_beg} and {parameters.pad_end}, "
        f"shrunk by {parameters.shrink_factor} and zoomed by {parameters.zoom_factor}",
    )
    if parameters.pad_beg or parameters.pad_end:
        starts = (0, 0, -parameters.pad_beg, -parameters.pad_beg)
        attrs = {"starts": starts, "sizes": (*shape[:2], *cropped), "steps": (1,) * 4}
        x = node.emit("Slice", [x], attrs, tag="cropped")
    # The factors count the gaps between pixels, not the pixels, because corners stay on corners.
    shrunk = [(d - 1) // parameters.shrink_factor + 1 for d in cropped]
    height, width = (d + (d - 1) * (parameters.zoom_factor - 1) for d in shrunk)
    has_one_factor = parameters.HasField("shrink_factor") != parameters.HasField("zoom_factor")
    if node.bottom_count > 1:
        height, width = node.shape(1)[2:]
    elif parameters.height and parameters.width and not has_one_factor:
        height, width = int(parameters.height), int(parameters.width)
    return _resize(node, x, (height, width), ("linear", "align_corners"))


def _require_image(node: CaffeNode) -> None:
    rank = len(node.shape())
    node.refuse_unless(rank == 4, f"its bottom has rank {rank}; it needs 4")


def _upsample(node: CaffeNode) -> Sequence[str]:
    """Repeat pixels; with a second bottom, put them where a MAX pool found them."""
    parameters, shape = node.layer.upsample_param, node.shape()
    _require_image(node)
    # SegNet's fork calls the sizes upsample_h and upsample_w, others height and width; both put them before
    # the scale.
    size = (
        parameters.height or parameters.upsample_h or shape[2] * parameters.scale,
        parameters.width or parameters.upsample_w or shape[3] * parameters.scale,
    )
    if node.bottom_count > 1:
        return _unpool(node, size)
    return _resize(node, node.input(), size, ("nearest", "asymmetric"))


def _unpool(node: CaffeNode, size: tuple[int, int]) -> Sequence[str]:
    """Put each number where MAX pooling found it (V. Badrinarayanan et al., "SegNet", 2015).

    The indices count the pixels of one channel, as the second top of Caffe's Pooling has them.
    """
    shape = node.shape()
    node.refuse_unless(
        node.shape(1) == shape and min(size) > 0,
        f"it has indices of shape {list(node.shape(1))} for a bottom of shape {list(shape)}",
    )
    flat = (*shape[:2], prod(shape[2:]))
    rows = node.emit("Reshape", [node.input(1)], {"shape": flat})
    indices = node.emit("Cast", [rows], {"to": "i64"}, tag="places")
    values = node.emit("Reshape", [node.input()], {"shape": flat})
    zero = node.add_float(np.zeros((1, 1, 1)), "zero")
    zeros = node.emit("Expand", [zero], {"shape": (*shape[:2], prod(size))})
    image = node.emit("ScatterElements", [zeros, indices, values], {"axis": 2})
    return node.done("Reshape", [image], {"shape": (*shape[:2], *size)})


def _resize_nearest(node: CaffeNode) -> Sequence[str]:
    parameters, shape = node.layer.resize_nearest_param, node.shape()
    _require_image(node)
    size = (int(shape[2] * parameters.height_scale), int(shape[3] * parameters.width_scale))
    return _resize(node, node.input(), size, ("nearest", "asymmetric"))


def _batch_reindex(node: CaffeNode) -> Sequence[str]:
    # All blobs of Caffe are floats, indices among them.
    indices = node.emit("Cast", [node.input(1)], {"to": "i64"}, tag="places")
    return node.done("Gather", [node.input(0), indices], {"axis": 0})


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
        "ShuffleChannel": _shuffle_channel,
        "Reorg": _reorg,
        "Interp": _interp,
        "Upsample": _upsample,
        "ResizeNearest": _resize_nearest,
        "BatchReindex": _batch_reindex,
    }
)
