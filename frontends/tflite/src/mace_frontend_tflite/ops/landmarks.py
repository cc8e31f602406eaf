"""MediaPipe's custom operators for landmarks, version 2, as its kernels define them.

Source of the formulas: mediapipe/util/tflite/operations, and of the names of the options: TFLite's GPU
delegate (tensorflow/lite/delegates/gpu/common/mediapipe), both Apache-2.0: facts only. Version 1 of
TransformLandmarks and of Landmarks2TransformMatrix computes something else, from other options, and is
refused.

A matrix [4, 4] moves points (x, y, 0, 1); its third column and its last two rows are those of the identity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from mace_core.importer import RefusedError
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler

VERSION = 2
HALF_PIXEL = 0.5
"""The matrix moves centers of pixels: pixel 0 reaches from 0 to 1, so its center is at 0.5."""


def _refuse_other_versions(node: TfliteNode) -> None:
    version = node.operator.version
    problem = (
        f"it is version {version} of its operator, which MediaPipe's public kernels compute in another way"
    )
    node.refuse_unless(version == VERSION, f"{problem}; only version {VERSION} is supported")


def _read_options(node: TfliteNode) -> Mapping[str, Any]:
    """Return the options, which the file holds as a map of flexbuffers."""
    try:
        options = flexbuffers.Loads(bytearray(node.operator.custom))
    except Exception as error:  # the library documents no exceptions and raises many kinds
        raise RefusedError(f"its options cannot be read: {error}; convert the model again") from error
    node.refuse_unless(
        isinstance(options, dict), f"its options are {options!r} instead of a map; convert the model again"
    )
    return dict(options)


def _number(node: TfliteNode, options: Mapping[str, Any], name: str) -> float:
    """Return one option, which must be a finite number."""
    value = options.get(name)
    known = isinstance(value, int | float) and math.isfinite(value)
    node.refuse_unless(known, f"its option {name} is {value!r} instead of a number; convert the model again")
    assert isinstance(value, int | float)
    return value


def _multiply(node: TfliteNode, a: str, b: str) -> str:
    return node.emit("Mul", [a, b], tag="product")


def _add(node: TfliteNode, a: str, b: str) -> str:
    return node.emit("Add", [a, b], tag="sum")


def _subtract(node: TfliteNode, a: str, b: str) -> str:
    return node.emit("Sub", [a, b], tag="difference")


def _real(node: TfliteNode, value: float) -> str:
    return node.add_constant(np.float32(value), tag="number")


def _part(node: TfliteNode, x: str, starts: Sequence[int], sizes: Sequence[int]) -> str:
    attrs = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * len(starts)}
    return node.emit("Slice", [x], attrs, tag="part")


def _read_matrix(node: TfliteNode, index: int) -> tuple[str, str]:
    """Return the matrix of an input: [2, 2] that rotates and scales (x, y), and [2] that moves them."""
    shape = node.shape(index)
    node.require_consistent(math.prod(shape) == 16, f"it has a matrix of shape {list(shape)} instead of 4x4")
    matrix = node.emit("Reshape", [node.input(index)], {"shape": (4, 4)}, tag="matrix")
    move = node.emit("Reshape", [_part(node, matrix, (0, 3), (2, 1))], {"shape": (2,)}, tag="move")
    return _part(node, matrix, (0, 0), (2, 2)), move


def _apply_matrix(node: TfliteNode, points: str, matrix: str, move: str) -> str:
    """Return points [..., 2] as the matrix rotates, scales and moves them."""
    # Points are rows here and columns in the formulas, so the matrix is transposed.
    columns = node.emit("Transpose", [matrix], {"perm": (1, 0)}, tag="columns")
    rotated = node.emit("MatMul", [points, columns], tag="turned")
    return _add(node, rotated, move)


def _transform_landmarks(node: TfliteNode) -> Sequence[str]:
    """Add TransformLandmarks(landmarks [1, N, 2 or 3], matrix), which moves x and y and leaves z."""
    _refuse_other_versions(node)
    shape = node.shape(0)
    known = len(shape) == 3 and shape[0] == 1 and shape[2] in (2, 3)
    node.require_consistent(
        known, f"it has landmarks of shape {list(shape)} instead of [1, N, 2] or [1, N, 3]"
    )
    count = shape[1]
    moved = _apply_matrix(node, _part(node, node.input(0), (0, 0, 0), (1, count, 2)), *_read_matrix(node, 1))
    if shape[2] == 2:
        return node.done("Identity", [moved])
    return node.done("Concat", [moved, _part(node, node.input(0), (0, 0, 2), (1, count, 1))], {"axis": 2})


def _transform_image(node: TfliteNode) -> Sequence[str]:
    """Add TransformTensorBilinear(image [1, H, W, C], matrix).

    Each pixel of the output is the image at the point to which the matrix moves the pixel's center:
    interpolated between four pixels, and 0 beyond the centers of the outermost ones.
    """
    _refuse_other_versions(node)
    options = _read_options(node)
    size = [int(_number(node, options, name)) for name in ("output_height", "output_width")]
    shape, declared = node.shape(0), tuple(node.output().shape)
    node.require_consistent(
        len(shape) == 4 and shape[0] == 1, f"it has an image of shape {list(shape)} instead of [1, H, W, C]"
    )
    node.require_consistent(
        min(size) > 0 and declared in ((), (1, *size, shape[3])),
        f"it has an output of {list(declared)}, its options say {size}",
    )
    rows, columns = np.meshgrid(*(np.arange(n) + HALF_PIXEL for n in size), indexing="ij")
    centers = node.add_constant(np.stack([columns, rows], -1).astype(np.float32)[None], tag="centers")
    places = _subtract(node, _apply_matrix(node, centers, *_read_matrix(node, 1)), _real(node, HALF_PIXEL))
    last = node.add_constant(np.array([shape[2] - 1, shape[1] - 1], np.float32), tag="last")
    # GridSample repeats the border, while the kernel gives 0 there: a point that a clamp would move lies
    # outside.
    low = node.emit("Maximum", [places, _real(node, 0)], tag="low")
    nearest = node.emit("Minimum", [low, last], tag="nearest")
    unmoved = node.emit("Equal", [places, nearest], tag="equal")
    inside = node.emit("Cast", [unmoved], {"to": "f32"}, tag="inside")
    both = node.emit("ReduceMin", [inside], {"axes": (3,), "keepdims": True}, tag="both")
    # GridSample counts from -1 at the outer edge of the first pixel to 1 at that of the last
    scale = node.add_constant(np.array([2 / shape[2], 2 / shape[1]], np.float32), tag="scale")
    edges = _multiply(node, _add(node, nearest, _real(node, HALF_PIXEL)), scale)
    grid = _subtract(node, edges, _real(node, 1))
    attrs = {"mode": "linear", "padding": "border", "align_corners": False}
    return node.done("Mul", [node.emit("GridSample", [node.input(0), grid], attrs, tag="sampled"), both])


@dataclass(frozen=True)
class _Crop:
    """The options of Landmarks2TransformMatrix.

    subset: the landmarks that lie inside of the crop.
    left, right: the landmarks of a line that gets the direction `target`, in radians.
    size: width and height of the output.  scale: factors by which the crop is wider and higher than the
    subset.
    """

    subset: tuple[int, ...]
    left: int
    right: int
    target: float
    size: tuple[int, int]
    scale: tuple[float, float]

    @classmethod
    def read(cls, node: TfliteNode, count: int) -> _Crop:
        """Read and check the options of a node with so many landmarks."""
        options = _read_options(node)
        subset = options.get("subset_idxs")
        listed = isinstance(subset, list) and len(subset) > 0 and all(isinstance(i, int) for i in subset)
        node.require_consistent(
            listed, f"its option subset_idxs is {subset!r} instead of numbers of landmarks"
        )
        names = ("left_rotation_idx", "right_rotation_idx", "output_width", "output_height")
        left, right, width, height = (int(_number(node, options, name)) for name in names)
        scale = _number(node, options, "scale_x"), _number(node, options, "scale_y")
        assert isinstance(subset, list)
        known = all(0 <= i < count for i in (*subset, left, right))
        node.require_consistent(known, f"its options name landmarks that are not among {count}")
        node.require_consistent(
            min(width, height, *scale) > 0, f"it has a crop of {(width, height)} scaled by {scale}"
        )
        target = _number(node, options, "target_rotation_radians")
        return cls(tuple(subset), left, right, target, (width, height), scale)


def _direction(node: TfliteNode, points: str, crop: _Crop) -> tuple[str, str]:
    """Return cosine and sine of the angle by which the crop is rotated.

    That angle is the target less the direction from the left landmark to the right one. The kernel computes
    it by atan2; here cosine and sine of the direction are its coordinates divided by its length, and 1 and 0
    where both landmarks are one point, as atan2(0, 0) is 0.
    """
    right, left = (_part(node, points, (index, 0), (1, 2)) for index in (crop.right, crop.left))
    way = _subtract(node, right, left)
    zero, one = _real(node, 0), _real(node, 1)
    largest = node.emit(
        "ReduceMax", [node.emit("Abs", [way], tag="size")], {"axes": (1,), "keepdims": True}, tag="largest"
    )
    none = node.emit("Equal", [largest, zero], tag="none")
    # Divided by the larger coordinate first, so that the square of neither overflows or vanishes.
    unit = node.emit("Div", [way, node.emit("Where", [none, one, largest], tag="divisor")], tag="unit")
    square = node.emit(
        "ReduceSum", [_multiply(node, unit, unit)], {"axes": (1,), "keepdims": True}, tag="square"
    )
    length = node.emit("Sqrt", [node.emit("Where", [none, one, square], tag="squared")], tag="length")
    straight = node.emit("Div", [unit, length], tag="straight")
    forward = node.emit("Where", [none, one, _part(node, straight, (0, 0), (1, 1))], tag="forward")
    upward = _part(node, straight, (0, 1), (1, 1))
    cos, sin = (_real(node, f(crop.target)) for f in (math.cos, math.sin))
    # cos(t - d) and sin(t - d) by the theorems of addition.
    rotation_cos = _add(node, _multiply(node, forward, cos), _multiply(node, upward, sin))
    rotation_sin = _subtract(node, _multiply(node, forward, sin), _multiply(node, upward, cos))
    return rotation_cos, rotation_sin


def _place_crop(node: TfliteNode, crop: _Crop, count: int) -> tuple[str, str]:
    """Return the place of the crop in the image: its axes as columns of a [2, 2] matrix, its center [1, 2].

    count: the number of landmarks.
    """
    flat = _part(node, node.input(0), (0, 0, 0), (1, count, 2))
    points = node.emit("Reshape", [flat], {"shape": (count, 2)}, tag="points")
    cos, sin = _direction(node, points, crop)
    minus = node.emit("Neg", [sin], tag="minus")
    # Rows of points times `turn` are rotated points; times `back`, points that are rotated back.
    cells = ((cos, sin), (minus, cos), (cos, minus), (sin, cos))
    rows = [node.emit("Concat", pair, {"axis": 1}, tag="row") for pair in cells]
    turn, back = (node.emit("Concat", pair, {"axis": 0}, tag="turn") for pair in (rows[:2], rows[2:]))
    numbers = node.add_constant(np.array(crop.subset, np.int32), tag="subset")
    subset = node.emit("Gather", [points, numbers], {"axis": 0}, tag="held")
    rotated = node.emit("MatMul", [subset, turn], tag="turned")
    axes = {"axes": (0,)}
    low, high = (node.emit(op, [rotated], axes, tag=op) for op in ("ReduceMin", "ReduceMax"))
    middle = _multiply(node, _add(node, low, high), _real(node, 0.5))
    center = node.emit("MatMul", [middle, back], tag="center")
    ratios = [scale / size for scale, size in zip(crop.scale, crop.size, strict=True)]
    factors = node.add_constant(np.array([ratios], np.float32), tag="factors")
    scale = _multiply(node, _subtract(node, high, low), factors)
    # Columns of the matrix are the axes of the crop in the image: the rows of `back`, scaled.
    columns = _multiply(node, back, node.emit("Reshape", [scale], {"shape": (2, 1)}, tag="scale"))
    return columns, center


def _crop_matrix(node: TfliteNode) -> Sequence[str]:
    """Add Landmarks2TransformMatrix(landmarks [1, N, 3]): the matrix from pixels of a crop to the image.

    The crop is rotated so that a line between two landmarks has the target's direction, it contains a subset
    of the landmarks, and it is scaled to the size of the output. The matrix moves by half of the output,
    scales, rotates back, and moves to the crop's center.
    """
    _refuse_other_versions(node)
    shape = node.shape(0)
    node.require_consistent(
        len(shape) == 3 and shape[0] == 1 and shape[2] == 3,
        f"it has landmarks of shape {list(shape)} instead of [1, N, 3]",
    )
    crop = _Crop.read(node, shape[1])
    columns, center = _place_crop(node, crop, shape[1])
    half = node.add_constant(np.array([[-n / 2 for n in crop.size]], np.float32), tag="half")
    move = _add(node, center, node.emit("MatMul", [half, columns], tag="shift"))
    matrix = node.emit("Transpose", [columns], {"perm": (1, 0)}, tag="matrix")
    nothing = node.add_constant(np.zeros((2, 1), np.float32), tag="nothing")
    last = node.emit("Reshape", [move], {"shape": (2, 1)}, tag="move")
    upper = node.emit("Concat", [matrix, nothing, last], {"axis": 1}, tag="upper")
    lower = node.add_constant(np.eye(4, dtype=np.float32)[2:], tag="lower")
    square = node.emit("Concat", [upper, lower], {"axis": 0}, tag="whole")
    return node.done("Reshape", [square], {"shape": (1, 4, 4)})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "custom Landmarks2TransformMatrix": _crop_matrix,
        "custom TransformLandmarks": _transform_landmarks,
        "custom TransformTensorBilinear": _transform_image,
    }
)
