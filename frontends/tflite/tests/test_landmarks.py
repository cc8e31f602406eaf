"""MediaPipe's custom operators for landmarks, against a numpy program of what its kernels compute."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import Case, f32, load
from tflite_write import Value

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu

SUBSET = [3, 7, 1, 9]
CROP: Mapping[str, object] = {
    "subset_idxs": SUBSET,
    "left_rotation_idx": 2,
    "right_rotation_idx": 5,
    "target_rotation_radians": 0.3,
    "output_height": 24,
    "output_width": 32,
    "scale_x": 1.5,
    "scale_y": 1.25,
}
SIZE = {"output_height": 7, "output_width": 9}


def options_of(**options: object) -> bytes:
    return bytes(flexbuffers.Dumps(dict(options)))


def transform(operands: list[Value], code: str, options: bytes = b"", version: int = 2) -> Case:
    return Case(code.lower(), f"custom {code}", operands, custom=options, version=version)


def affine(scale: float, angle: float, move: tuple[float, float]) -> Array:
    """A matrix of 4x4 that turns, scales and moves x and y."""
    matrix = np.eye(4, dtype=np.float32)
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    matrix[:2, :2] = [[cos, -sin], [sin, cos]]
    matrix[:2, 3] = move
    return matrix


def sampled(image: Array, matrix: Array, height: int, width: int) -> Array:
    """The image at the places of the centers of pixels, 0 where a place is not between centers of its pixels."""
    _, rows, columns, channels = image.shape
    result = np.zeros((1, height, width, channels), np.float32)
    for y, x in np.ndindex(height, width):
        place = matrix @ np.array([x + 0.5, y + 0.5, 0, 1])
        u, v = place[0] - 0.5, place[1] - 0.5
        if not (0 <= u <= columns - 1 and 0 <= v <= rows - 1):
            continue
        left, top = math.floor(u), math.floor(v)
        right, below = min(left + 1, columns - 1), min(top + 1, rows - 1)
        a, b = u - left, v - top
        upper = (1 - a) * image[0, top, left] + a * image[0, top, right]
        lower = (1 - a) * image[0, below, left] + a * image[0, below, right]
        result[0, y, x] = (1 - b) * upper + b * lower
    return result


@pytest.mark.parametrize(
    "matrix",
    [
        affine(1, 0, (0, 0)),
        affine(0.5, 0.4, (1.2, 0.3)),
        affine(1.7, -2.5, (4, 6)),
        affine(1, 0, (0.25, -0.5)),
        affine(1, 0, (99, 0)),
    ],
    ids=["same", "turned", "far", "moved", "outside"],
)
@pytest.mark.parametrize("shape", [(6, 8, 3), (1, 1, 2), (7, 9, 1)])
def test_an_image_is_sampled_where_the_matrix_says(
    matrix: Array, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    case = transform([f32(1, *shape), f32(1, 4, 4)], "TransformTensorBilinear", options_of(**SIZE))
    graph = load(tmp_path, case.written())
    image = case.arrays()["in0"]
    actual = execute(graph, {"in0": image, "in1": matrix[None]})[graph.outputs[0]]
    np.testing.assert_allclose(actual, sampled(image, matrix, 7, 9), atol=2e-5)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_landmarks_are_moved_and_keep_their_depth(dimensions: int, tmp_path: Path) -> None:
    case = transform([f32(1, 5, dimensions), f32(1, 4, 4)], "TransformLandmarks")
    graph, arrays = load(tmp_path, case.written()), case.arrays()
    matrix = arrays["in1"][0]
    expected = arrays["in0"].copy()
    for point in expected[0]:
        point[:2] = [matrix[row, :2] @ point[:2] + matrix[row, 3] for row in (0, 1)]
    np.testing.assert_allclose(execute(graph, arrays)[graph.outputs[0]], expected, rtol=1e-5, atol=1e-6)


def crop_matrix(points: Array, crop: Mapping[str, object] = CROP) -> Array:
    """What brings pixels of the crop to the image, matrix by matrix in double precision."""
    (ax, ay), (bx, by) = (
        points[crop[name], :2].astype(float) for name in ("left_rotation_idx", "right_rotation_idx")
    )  # type: ignore[index]
    turn = float(str(crop["target_rotation_radians"])) - math.atan2(by - ay, bx - ax)
    cos, sin = math.cos(turn), math.sin(turn)
    around, back = np.array([[cos, -sin], [sin, cos]]), np.array([[cos, sin], [-sin, cos]])
    held = points[SUBSET, :2].astype(float) @ around.T
    low, high = held.min(0), held.max(0)
    size = np.array([float(str(crop["output_width"])), float(str(crop["output_height"]))])
    factors = np.array([float(str(crop["scale_x"])), float(str(crop["scale_y"]))])
    scaled = back @ np.diag(factors * (high - low) / size)
    matrix = np.eye(4)
    matrix[:2, :2] = scaled
    matrix[:2, 3] = back @ ((low + high) / 2) - scaled @ (size / 2)
    return matrix


@pytest.mark.parametrize("seed", range(6))
def test_the_matrix_of_a_crop(seed: int, tmp_path: Path) -> None:
    case = transform([f32(1, 10, 3)], "Landmarks2TransformMatrix", options_of(**CROP))
    graph = load(tmp_path, case.written())
    points = np.random.default_rng(seed).uniform(-100, 100, (10, 3)).astype(np.float32)
    actual = execute(graph, {"in0": points[None]})[graph.outputs[0]]
    np.testing.assert_allclose(actual, crop_matrix(points)[None], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "way", [(0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (1e-30, 1e-30)]
)
def test_a_crop_along_an_axis_or_of_one_point(way: tuple[float, float], tmp_path: Path) -> None:
    case = transform([f32(1, 10, 3)], "Landmarks2TransformMatrix", options_of(**CROP))
    graph = load(tmp_path, case.written())
    points = np.random.default_rng(1).uniform(-1, 1, (10, 3)).astype(np.float32)
    points[2, :2] = 0
    points[5, :2] = way
    actual = execute(graph, {"in0": points[None]})[graph.outputs[0]]
    np.testing.assert_allclose(actual, crop_matrix(points)[None], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (
            transform([f32(1, 5, 3), f32(1, 4, 4)], "TransformLandmarks", version=1),
            "it is version 1 of its operator",
        ),
        (
            transform([f32(1, 5, 3)], "Landmarks2TransformMatrix", options_of(**CROP), 1),
            "it is version 1 of its operator",
        ),
        (
            transform([f32(1, 4, 4, 1), f32(1, 4, 4)], "TransformTensorBilinear", options_of(**SIZE), 3),
            "it is version 3 of its operator",
        ),
        (
            transform([f32(1, 5, 4), f32(1, 4, 4)], "TransformLandmarks"),
            r"landmarks of shape \[1, 5, 4\] instead of",
        ),
        (
            transform([f32(1, 5, 3), f32(1, 3, 4)], "TransformLandmarks"),
            r"a matrix of shape \[1, 3, 4\] instead of 4x4",
        ),
        (
            transform([f32(2, 4, 4, 1), f32(1, 4, 4)], "TransformTensorBilinear", options_of(**SIZE)),
            "an image of shape",
        ),
        (
            transform([f32(1, 4, 4, 1), f32(1, 4, 4)], "TransformTensorBilinear", b"\xff"),
            "its options cannot be read",
        ),
        (
            transform(
                [f32(1, 4, 4, 1), f32(1, 4, 4)], "TransformTensorBilinear", options_of(output_height=3)
            ),
            "its option output_width is None",
        ),
        (
            transform([f32(1, 9, 3)], "Landmarks2TransformMatrix", options_of(**CROP)),
            "landmarks that are not among 9",
        ),
        (
            transform(
                [f32(1, 10, 3)], "Landmarks2TransformMatrix", options_of(**{**CROP, "subset_idxs": []})
            ),
            "its option subset_idxs",
        ),
        (
            transform([f32(1, 10, 3)], "Landmarks2TransformMatrix", options_of(**{**CROP, "scale_x": 0.0})),
            "a crop of",
        ),
    ],
)
def test_what_the_kernels_do_not_define_is_refused(case: Case, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=problem) as error:
        load(tmp_path, case.written())
    assert case.code.removeprefix("custom ") in str(error.value)


@pytest.mark.slow
def test_the_library_computes_them(tmp_path: Path) -> None:
    cases = (
        transform([f32(1, 6, 8, 3), f32(1, 4, 4)], "TransformTensorBilinear", options_of(**SIZE)),
        transform([f32(1, 5, 3), f32(1, 4, 4)], "TransformLandmarks"),
        transform([f32(1, 10, 3)], "Landmarks2TransformMatrix", options_of(**CROP)),
    )
    graphs = [load(tmp_path, case.written()).with_name(case.name) for case in cases]
    check_graphs(Cpu(), graphs, tmp_path / "library")


def test_options_that_are_no_map_are_refused(tmp_path: Path) -> None:
    options = bytes(flexbuffers.Dumps([7, 9]))
    case = transform([f32(1, 6, 8, 3), f32(1, 4, 4)], "TransformTensorBilinear", options)
    with pytest.raises(
        MaceError, match=r"its options are \[7, 9\] instead of a map; convert the model again"
    ):
        load(tmp_path, case.written())


@pytest.mark.parametrize(
    ("declared", "fits"), [((1, 7, 9, 3), True), ((2, 7, 9, 3), False), ((1, 7, 9, 4), False)]
)
def test_an_image_has_the_size_of_its_options(declared: tuple[int, ...], fits: bool, tmp_path: Path) -> None:
    case = transform([f32(1, 6, 8, 3), f32(1, 4, 4)], "TransformTensorBilinear", options_of(**SIZE))
    written = replace(case, outputs=(f32(*declared),)).written()
    if fits:
        assert load(tmp_path, written).tensors["out0"].shape == declared
        return
    with pytest.raises(
        MaceError, match=re.escape(f"it has an output of {list(declared)}, its options say [7, 9]")
    ):
        load(tmp_path, written)
