"""Layers that move elements, and layers that do nothing once a model is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.decompositions import nearest_places, nearest_resize
from mace_core.ir import Shape
from mace_core.ops.resize import ResizeAttributes
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.settings import TRAINING_LAYERS

TRAINING = (*TRAINING_LAYERS, "ActivityRegularization", "Identity")
"""Layers that return their input."""


def resolve_shape(node: KerasNode, dims: Sequence[Any], shape: Shape) -> Shape:
    """Return a new shape for as many elements as `shape` has, the -1 among its dimensions filled in."""
    node.require_consistent(
        all(type(dim) is int and dim >= -1 for dim in dims) and list(dims).count(-1) <= 1,
        f"it has a new shape of {dims!r}",
    )
    known, elements = prod(dim for dim in dims if dim != -1), prod(shape)
    fits = (known > 0 and elements % known == 0) or elements == known
    node.require_consistent(fits, f"it has {elements} elements in a shape of {list(dims)}")
    return tuple(elements // known if dim == -1 else int(dim) for dim in dims)


def _flatten(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape = node.shape(x)
    # Flatten gives channels-last elements whatever the order of its images is.
    if node.is_channels_first and len(shape) > 2:
        x = node.emit("Transpose", [x], {"perm": (0, *range(2, len(shape)), 1)}, tag="channels-last")
    return node.done("Reshape", [x], {"shape": (shape[0], prod(shape[1:]))})


def _reshape(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape, target = node.shape(x), node.get("target_shape", [])
    return node.done("Reshape", [x], {"shape": (shape[0], *resolve_shape(node, target, shape[1:]))})


def _permute(node: KerasNode) -> Sequence[str]:
    x = node.input()
    dims, rank = node.get("dims", []), len(node.shape(x))
    node.require_consistent(
        sorted(dims) == list(range(1, rank)), f"it has dims {dims!r} of a tensor of rank {rank}"
    )
    return node.done("Transpose", [x], {"perm": (0, *dims)})


def _repeat(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape, count = node.shape(x), node.integer("n")
    node.require_consistent(
        len(shape) == 2 and count > 0, f"it makes {count} repetitions of a tensor of rank {len(shape)}"
    )
    row = node.emit("Reshape", [x], {"shape": (shape[0], 1, shape[1])})
    return node.done("Tile", [row], {"repeats": (1, count, 1)})


def _first_spatial(node: KerasNode) -> int:
    return 2 if node.is_channels_first else 1


def _sides(node: KerasNode, key: str, rank: int) -> list[tuple[int, int]]:
    """Return what a setting states for both ends of each spatial axis.

    It is one number for all, one for each axis, or a pair for each; with one axis a pair may stand by itself.
    """
    value = node.get(key, 1)
    if type(value) is int:
        value = [value] * (2 if rank == 1 else rank)
    if rank == 1 and all(type(v) is int for v in value):
        value = [value]
    pairs = [[v, v] if type(v) is int else v for v in value]
    node.require_consistent(
        len(pairs) == rank and all(len(p) == 2 and min(p) >= 0 for p in pairs), f"its {key} is {value!r}"
    )
    return [(int(a), int(b)) for a, b in pairs]


def _cropping(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.input()
        shape, first = node.shape(x), _first_spatial(node)
        node.require_consistent(len(shape) == rank + 2, f"it is given a tensor of rank {len(shape)}")
        starts, sizes = [0] * len(shape), list(shape)
        for axis, (low, high) in enumerate(_sides(node, "cropping", rank), first):
            starts[axis], sizes[axis] = low, shape[axis] - low - high
        attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(shape)}
        return node.done("Slice", [x], attrs)

    return handle


def _padding(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.input()
        total, first = len(node.shape(x)), _first_spatial(node)
        node.require_consistent(total == rank + 2, f"it is given a tensor of rank {total}")
        before, after = [0] * total, [0] * total
        for axis, (low, high) in enumerate(_sides(node, "padding", rank), first):
            before[axis], after[axis] = low, high
        return node.done("Pad", [x], {"before": tuple(before), "after": tuple(after)})

    return handle


RESIZING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "nearest": {"mode": "nearest", "nearest": "round_prefer_ceil"},
        "bilinear": {"mode": "linear"},
        "bicubic": {"mode": "cubic", "cubic_a": -0.5, "exclude_outside": True},
    }
)
"""Interpolation -> attributes of Resize.

Keras takes the nearest element floor((i + 0.5) * scale): the half_pixel position, rounded half up. Bicubic
has Keys' coefficient of -0.5, and leaves out pixels beyond the edge.
"""


def done_resize(node: KerasNode, x: str, spatial: Shape, first: int) -> Sequence[str]:
    """Add the call's result: an image whose axes from `first` on have these sizes."""
    shape, interpolation = node.shape(x), str(node.get("interpolation", "nearest"))
    node.refuse_unless(
        interpolation in RESIZING and min(spatial) > 0,
        f"interpolation {interpolation!r} to {list(spatial)}; use nearest, bilinear or bicubic",
    )
    sizes = (*shape[:first], *spatial, *shape[first + len(spatial) :])
    scales = tuple(resized / size for resized, size in zip(sizes, shape, strict=True))
    if interpolation == "nearest" and not nearest_resize(
        ResizeAttributes(sizes, scales), shape, corners=False, centers=True
    ):
        return _gather_nearest(node, x, sizes)
    attrs = {"sizes": sizes, "scales": scales, "coordinates": "half_pixel", **RESIZING[interpolation]}
    return node.done("Resize", [x], attrs)


def _gather_nearest(node: KerasNode, x: str, sizes: Shape) -> Sequence[str]:
    """Add the nearest elements for sizes for which a Resize rounds to others."""
    for axis, (size, resized) in enumerate(zip(node.shape(x), sizes, strict=True)):
        if size != resized:
            places = node.add_constant(
                nearest_places(size, resized, corners=False, centers=True), tag="places"
            )
            x = node.emit("Gather", [x, places], {"axis": axis}, tag="resized")
    return node.done("Identity", [x])


def _upsampling(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.float_input()
        shape, first = node.shape(x), _first_spatial(node)
        node.require_consistent(len(shape) == rank + 2, f"it is given a tensor of rank {len(shape)}")
        times = node.integers("size", rank, 2)
        return done_resize(node, x, tuple(shape[first + i] * t for i, t in enumerate(times)), first)

    return handle


def _image_first(node: KerasNode, x: str) -> int:
    rank = len(node.shape(x))
    node.require_consistent(rank in (3, 4), f"it is given a tensor of rank {rank}")
    return rank - 2 if node.is_channels_first else rank - 3


def _resizing(node: KerasNode) -> Sequence[str]:
    for key in ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias"):
        node.refuse_unless(
            not node.get(key, False), f"{key}; resize images before they are given to the model"
        )
    x = node.float_input()
    return done_resize(node, x, (node.integer("height"), node.integer("width")), _image_first(node, x))


def _center_crop(node: KerasNode) -> Sequence[str]:
    x = node.input()
    first, shape = _image_first(node, x), node.shape(x)
    cropped = (node.integer("height"), node.integer("width"))
    # Keras enlarges a smaller image by resizing, which depends on the shape and is refused.
    fits = all(0 < size <= full for size, full in zip(cropped, shape[first:], strict=False))
    node.refuse_unless(fits, f"{list(shape)} cropped to {list(cropped)}; images must be as large")
    starts, sizes = [0] * len(shape), list(shape)
    for axis, size in enumerate(cropped, first):
        starts[axis], sizes[axis] = (shape[axis] - size) // 2, size
    attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(shape)}
    return node.done("Slice", [x], attrs)


def _masking(node: KerasNode) -> Sequence[str]:
    """Add zeros where all features of a step have the mask's value.

    Layers that use the mask itself are refused.
    """
    x = node.float_input()
    difference = node.emit("Abs", [node.emit("Sub", [x, node.add_float(node.real("mask_value", 0.0))])])
    axes = {"axes": (len(node.shape(x)) - 1,), "keepdims": True}
    largest = node.emit("ReduceMax", [difference], axes)
    counts = node.emit("Cast", [node.emit("Greater", [largest, node.add_float(0.0)])], {"to": "f32"})
    return node.done("Mul", [x, counts])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(TRAINING, lambda node: node.done("Identity", [node.input()])),
        "Flatten": _flatten,
        "Reshape": _reshape,
        "Permute": _permute,
        "RepeatVector": _repeat,
        **{f"Cropping{n}D": _cropping(n) for n in (1, 2, 3)},
        **{f"ZeroPadding{n}D": _padding(n) for n in (1, 2, 3)},
        **{f"UpSampling{n}D": _upsampling(n) for n in (1, 2, 3)},
        "Resizing": _resizing,
        "CenterCrop": _center_crop,
        "Masking": _masking,
    }
)
