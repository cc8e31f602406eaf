"""Layers that move elements, and layers that do nothing once a model is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.ir import Shape
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler

TRAINING = (
    *(
        "Dropout",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
        "AlphaDropout",
        "GaussianDropout",
        "GaussianNoise",
    ),
    *(
        "ActivityRegularization",
        "Identity",
        "StochasticDepth",
        "RandomFlip",
        "RandomRotation",
        "RandomZoom",
        "RandomTranslation",
        "RandomContrast",
    ),
    *(
        "RandomBrightness",
        "RandomShear",
        "RandomErasing",
        "RandomHue",
        "RandomSaturation",
        "RandomColorJitter",
        "RandomGrayscale",
    ),
    *(
        "RandomSharpness",
        "RandomGaussianBlur",
        "RandomInvert",
        "RandomPosterization",
        "RandomColorDegeneration",
        "RandomPerspective",
    ),
    "RandomElasticTransform",
)
"""Layers that hand on what they are given, but in training."""


def resolved(node: KerasNode, wanted: Sequence[Any], shape: Shape) -> Shape:
    """A new shape with its -1 as what is left."""
    node.refuse_unless(
        all(type(d) is int and d >= -1 for d in wanted) and list(wanted).count(-1) <= 1,
        f"a new shape of {wanted!r}",
    )
    known, whole = prod(d for d in wanted if d != -1), prod(shape)
    node.refuse_unless(
        (known > 0 and whole % known == 0) or whole == known, f"{whole} elements in a shape of {list(wanted)}"
    )
    return tuple(whole // known if d == -1 else int(d) for d in wanted)


def _flatten(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape = node.shape(x)
    if node.is_channels_first and len(shape) > 2:
        x = node.emit("Transpose", [x], {"perm": (0, *range(2, len(shape)), 1)}, tag="channels-last")
    return node.done("Reshape", [x], {"shape": (shape[0], prod(shape[1:]))})


def _reshape(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape, wanted = node.shape(x), node.get("target_shape", [])
    return node.done("Reshape", [x], {"shape": (shape[0], *resolved(node, wanted, shape[1:]))})


def _permute(node: KerasNode) -> Sequence[str]:
    x = node.input()
    dims, rank = node.get("dims", []), len(node.shape(x))
    node.refuse_unless(sorted(dims) == list(range(1, rank)), f"dims {dims!r} of a tensor of rank {rank}")
    return node.done("Transpose", [x], {"perm": (0, *dims)})


def _repeat(node: KerasNode) -> Sequence[str]:
    x = node.input()
    shape, count = node.shape(x), node.integer("n")
    node.refuse_unless(len(shape) == 2 and count > 0, f"{count} repetitions of a tensor of rank {len(shape)}")
    row = node.emit("Reshape", [x], {"shape": (shape[0], 1, shape[1])})
    return node.done("Tile", [row], {"repeats": (1, count, 1)})


def _first_spatial(node: KerasNode) -> int:
    return 2 if node.is_channels_first else 1


def _sides(node: KerasNode, key: str, rank: int) -> list[tuple[int, int]]:
    """What a setting says of both ends of each spatial axis: one number for all, one for each axis, or a pair for each."""
    value = node.get(key, 1)
    if type(value) is int:
        value = [value] * (2 if rank == 1 else rank)
    if rank == 1 and all(type(v) is int for v in value):
        value = [value]
    pairs = [[v, v] if type(v) is int else v for v in value]
    node.refuse_unless(
        len(pairs) == rank and all(len(p) == 2 and min(p) >= 0 for p in pairs), f"{key} is {value!r}"
    )
    return [(int(a), int(b)) for a, b in pairs]


def _cropping(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.input()
        shape, first = node.shape(x), _first_spatial(node)
        node.refuse_unless(len(shape) == rank + 2, f"it is given a tensor of rank {len(shape)}")
        starts, sizes = [0] * len(shape), list(shape)
        for axis, (low, high) in enumerate(_sides(node, "cropping", rank), first):
            starts[axis], sizes[axis] = low, shape[axis] - low - high
        return node.done(
            "Slice", [x], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(shape)}
        )

    return handle


def _padding(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.input()
        total, first = len(node.shape(x)), _first_spatial(node)
        node.refuse_unless(total == rank + 2, f"it is given a tensor of rank {total}")
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
"""How an image is resized, places between pixels as half_pixel has them."""


def resized(node: KerasNode, x: str, spatial: Shape, first: int) -> Sequence[str]:
    """The call's result: an image of another size."""
    shape, how = node.shape(x), str(node.get("interpolation", "nearest"))
    node.refuse_unless(
        how in RESIZING and min(spatial) > 0,
        f"interpolation {how!r} to {list(spatial)}; use nearest, bilinear or bicubic",
    )
    sizes = (*shape[:first], *spatial, *shape[first + len(spatial) :])
    scales = tuple(s / d for s, d in zip(sizes, shape, strict=True))
    return node.done(
        "Resize", [x], {"sizes": sizes, "scales": scales, "coordinates": "half_pixel", **RESIZING[how]}
    )


def _upsampling(rank: int) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = node.float_input()
        shape, first = node.shape(x), _first_spatial(node)
        node.refuse_unless(len(shape) == rank + 2, f"it is given a tensor of rank {len(shape)}")
        times = node.integers("size", rank, 2)
        return resized(node, x, tuple(shape[first + i] * t for i, t in enumerate(times)), first)

    return handle


def _image_first(node: KerasNode, x: str) -> int:
    rank = len(node.shape(x))
    node.refuse_unless(rank in (3, 4), f"it is given a tensor of rank {rank}")
    return rank - 2 if node.is_channels_first else rank - 3


def _resizing(node: KerasNode) -> Sequence[str]:
    for key in ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias"):
        node.refuse_unless(
            not node.get(key, False), f"{key}; resize images before they are given to the model"
        )
    x = node.float_input()
    return resized(node, x, (node.integer("height"), node.integer("width")), _image_first(node, x))


def _center_crop(node: KerasNode) -> Sequence[str]:
    x = node.input()
    first, shape = _image_first(node, x), node.shape(x)
    wanted = (node.integer("height"), node.integer("width"))
    fits = all(0 < w <= s for w, s in zip(wanted, shape[first:], strict=False))
    node.refuse_unless(fits, f"{list(shape)} cropped to {list(wanted)}; images must be as large")
    starts, sizes = [0] * len(shape), list(shape)
    for axis, size in enumerate(wanted, first):
        starts[axis], sizes[axis] = (shape[axis] - size) // 2, size
    return node.done(
        "Slice", [x], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(shape)}
    )


def _masking(node: KerasNode) -> Sequence[str]:
    """Zero where all features of a step have the mask's value. What reads the mask itself is refused."""
    x = node.float_input()
    other = node.emit("Sub", [x, node.add_float(node.real("mask_value", 0.0))])
    some = node.emit(
        "ReduceMax", [node.emit("Abs", [other])], {"axes": (len(node.shape(x)) - 1,), "keepdims": True}
    )
    kept = node.emit("Cast", [node.emit("Greater", [some, node.add_float(0.0)])], {"to": "f32"})
    return node.done("Mul", [x, kept])


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
