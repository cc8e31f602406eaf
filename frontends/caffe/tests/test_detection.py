"""Anchors and boxes of detectors against OpenCV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check, entry, expected, files_of, floats, load, write_network

from mace_core.ir import Array
from mace_core.run.reference import execute

ANCHORS = 12
SIZES = "min_size: 20 min_size: 35 max_size: 40 max_size: 60 aspect_ratio: 2 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
CASES = (
    Case(
        "anchors",
        "PriorBox prior_box_param { min_size: 30 variance: 0.1 clip: false }",
        [(1, 4, 3, 2), (1, 3, 60, 40)],
    ),
    Case(
        "anchors of ratios",
        f"PriorBox prior_box_param {{ {SIZES} clip: true }}",
        [(1, 4, 3, 2), (1, 3, 60, 40)],
    ),
    Case(
        "anchors of one side",
        f"PriorBox prior_box_param {{ {SIZES} clip: false flip: false aspect_ratio: 3 step: 16 offset: 0.25 }}",
        [(1, 4, 3, 2), (1, 3, 60, 40)],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_anchors(case: Case, tmp_path: Path) -> None:
    """The anchors are constants: the network reads its inputs for nothing but their shapes."""
    check(case, tmp_path)


def test_anchors_of_an_image_of_its_own(tmp_path: Path) -> None:
    """The sizes of the image and of the steps that the layer states replace those of its bottoms."""
    own = f"PriorBox prior_box_param {{ {SIZES} img_h: 60 img_w: 40 step_h: 20 step_w: 20 }}"
    plain = f"PriorBox prior_box_param {{ {SIZES} }}"
    results = [
        load(files_of(Case("", p, [(1, 4, 3, 2), (1, 3, *side)]), tmp_path))
        for p, side in ((own, (99, 77)), (plain, (60, 40)))
    ]
    first, second = (
        execute(g, {n: np.zeros(g.tensors[n].shape, np.float32) for n in g.inputs})["y0"] for g in results
    )
    np.testing.assert_allclose(first, second, rtol=1e-6)


def network(parameters: str, classes: int, kinds: int = 1, images: int = 1) -> str:
    lines = [
        entry("loc", (images, ANCHORS * 4 * kinds)),
        entry("conf", (images, ANCHORS * classes)),
        entry("map", (1, 1, 3, 2)),
        entry("image", (1, 3, 60, 40)),
        'layer { name: "anchors" type: "PriorBox" bottom: "map" bottom: "image" top: "anchors" prior_box_param '
        "{ min_size: 30 max_size: 36 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.25 clip: false } }",
        'layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "anchors" top: "out" '
        f"detection_output_param {{ num_classes: {classes} {parameters} }} }}",
    ]
    return "\n".join(lines)


def arrays(classes: int, kinds: int, images: int) -> dict[str, Array]:
    return {
        "loc": floats(images, ANCHORS * 4 * kinds, seed=1),
        "conf": floats(images, ANCHORS * classes, low=0.0, seed=2),
        "map": floats(1, 1, 3, 2),
        "image": floats(1, 3, 60, 40),
    }


SHARED = "share_location: true background_label_id: 0"
NMS = "nms_param { nms_threshold: 0.4 top_k: 10 }"
DETECTIONS = (
    (f"{SHARED} code_type: CENTER_SIZE confidence_threshold: 0.3 keep_top_k: 9 {NMS}", 3, 1, 1),
    (f"{SHARED} code_type: CENTER_SIZE keep_top_k: 200 confidence_threshold: 0.2 {NMS}", 4, 1, 2),
    (f"{SHARED} code_type: CORNER confidence_threshold: 0.2 keep_top_k: 5 {NMS}", 3, 1, 1),
    (
        f"{SHARED} code_type: CORNER confidence_threshold: 0.5 keep_top_k: 4 nms_param {{ nms_threshold: 0.3 }}",
        2,
        1,
        1,
    ),
    (
        f"code_type: CENTER_SIZE share_location: false background_label_id: -1 confidence_threshold: 0.3 keep_top_k: 30 {NMS}",
        2,
        2,
        1,
    ),
    (
        f"share_location: true code_type: CENTER_SIZE background_label_id: 1 confidence_threshold: 0.3 keep_top_k: 11 {NMS}",
        3,
        1,
        1,
    ),
)


@pytest.mark.parametrize("case", DETECTIONS, ids=lambda c: c[0][:40])
def test_boxes(case: tuple[str, int, int, int], tmp_path: Path) -> None:
    parameters, classes, kinds, images = case
    files = write_network(tmp_path, network(parameters, classes, kinds, images))
    inputs = arrays(classes, kinds, images)
    right = expected(files, inputs)["out"]
    actual = execute(load(files), inputs)["out"]
    assert (right[..., 2] > 0).sum() > 3
    np.testing.assert_allclose(actual, right, rtol=2e-5, atol=2e-5)


def test_moves_that_hold_their_variances(tmp_path: Path) -> None:
    parameters, inputs = f"code_type: CENTER_SIZE confidence_threshold: 0.1 {NMS}", arrays(2, 1, 1)
    right = execute(load(write_network(tmp_path, network(parameters, 2))), inputs)["out"]
    inputs["loc"] = inputs["loc"] * np.tile(np.float32([0.1, 0.1, 0.2, 0.25]), ANCHORS)
    actual = execute(
        load(write_network(tmp_path, network(f"{parameters} variance_encoded_in_target: true", 2))), inputs
    )["out"]
    np.testing.assert_allclose(actual, right, rtol=1e-5, atol=1e-6)


def test_boxes_by_their_corners_and_sizes(tmp_path: Path) -> None:
    """CORNER_SIZE, which OpenCV lacks: a corner moves by a part of the anchor's size."""
    parameters = (
        "code_type: CORNER_SIZE confidence_threshold: 0.9 keep_top_k: 3 nms_param { nms_threshold: 0.9 }"
    )
    graph, inputs = load(write_network(tmp_path, network(parameters, 2))), arrays(2, 1, 1)
    inputs["conf"] = np.zeros((1, ANCHORS * 2), np.float32)
    inputs["conf"][0, 5 * 2 + 1] = 0.95
    rows = execute(graph, inputs)["out"].reshape(-1, 7)
    variance = np.array([0.1, 0.1, 0.2, 0.25])
    side = np.sqrt(30 * 36.0) / 2 / np.array([40, 60, 40, 60]) * [-1, -1, 1, 1]
    size = 2 * np.abs(side)
    assert not rows[1:].any()
    # Number 5 is the second of the third pixel: column 0, row 1.
    anchor = np.array([10, 30, 10, 30]) / [40, 60, 40, 60]
    box = anchor + side + inputs["loc"][0, 20:24] * variance * size
    np.testing.assert_allclose(rows[0], [0, 1, 0.95, *box], rtol=1e-5)
