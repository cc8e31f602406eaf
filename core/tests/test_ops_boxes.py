"""Boxes and regions of images at points that are known: suppression, decoding, alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array
from mace_core.ops import core_ops

OPS = core_ops()
NAN = math.nan


def run(op: str, inputs: Sequence[Array | None], **attrs: Attribute) -> tuple[Array, ...]:
    return OPS[op].compute(inputs, OPS[op].complete(attrs))


def f32(values: object) -> Array:
    return np.array(values, np.float32)


# Boxes by two corners: the second overlaps the first by exactly a half, the third lies apart.
BOXES = f32([[[0, 0, 2, 2], [2, 1, 0, 0], [5, 5, 6, 6], [0, 0, 2, 2], [NAN, 0, 2, 2], [3, 3, 3, 4]]])
SCORES = f32([[[0.9, 0.8, 0.7, 0.9, 0.6, 0.5]]])


@pytest.mark.parametrize(
    ("attrs", "kept"),
    [
        ({}, [0, 2, 4, 5]),
        ({"iou_threshold": 0.5}, [0, 1, 2, 4, 5]),
        ({"iou_threshold": 0.49}, [0, 2, 4, 5]),
        ({"iou_threshold": 1.0}, [0, 3, 1, 2, 4, 5]),
        ({"score_threshold": 0.7}, [0]),
        ({"score_threshold": 0.69}, [0, 2]),
        ({"per_class": 2}, [0, 2]),
    ],
)
def test_suppression_keeps_what_overlaps_no_more_than_the_threshold(
    attrs: dict[str, float], kept: list[int]
) -> None:
    selected, count = run("NonMaxSuppression", [BOXES, SCORES], **{"per_class": 6, **attrs})
    rows = min(int({"per_class": 6, **attrs}["per_class"]), 6)
    assert count.tolist() == [len(kept)]
    assert selected.tolist() == [[0, 0, i] for i in kept] + [[-1] * 3] * (rows - len(kept))


def test_boxes_by_their_centers() -> None:
    centers = f32([[[1, 1, 2, 2], [1, 0.5, 2, 1], [5.5, 5.5, 1, 1]]])
    for threshold, kept in ((0.5, [0, 1, 2]), (0.49, [0, 2])):
        selected, _ = run(
            "NonMaxSuppression", [centers, SCORES[..., :3]], per_class=3, iou_threshold=threshold, center=True
        )
        assert [row[2] for row in selected.tolist() if row[2] >= 0] == kept


def test_suppression_over_classes_and_images() -> None:
    boxes = np.stack([BOXES[0, :3], BOXES[0, :3]])[:, :, None]
    scores = f32([[[0.1, 0.6], [0.9, 0.2], [0.3, 0.3]], [[0, 0], [0, 0.5], [0, 0]]])
    actual = run("CombinedNonMaxSuppression", [boxes, scores], per_class=2, total=3, score_threshold=0.1)
    detections, confidences, classes, indices, count = actual
    assert count.tolist() == [3, 1]
    assert np.round(confidences, 6).tolist() == np.round(f32([[0.9, 0.6, 0.3], [0.5, 0, 0]]), 6).tolist()
    assert (classes.tolist(), indices.tolist()) == ([[0, 1, 0], [1, 0, 0]], [[1, 0, 2], [1, 0, 0]])
    assert detections[0].tolist() == BOXES[0, [1, 0, 2]].tolist()
    assert detections[1].tolist() == [BOXES[0, 1].tolist(), [0] * 4, [0] * 4]
    (*_, count) = run("CombinedNonMaxSuppression", [boxes, scores], per_class=2, total=9, candidates=1)
    assert count.tolist() == [2, 2]
    own = np.repeat(boxes, 2, axis=2)
    own[:, :, 1] += 1
    detections = run("CombinedNonMaxSuppression", [own, scores], per_class=2, total=3, score_threshold=0.1)[0]
    assert detections[0].tolist() == [BOXES[0, 1].tolist(), (BOXES[0, 0] + 1).tolist(), BOXES[0, 2].tolist()]


def test_decoded_boxes() -> None:
    deltas, priors = f32([[[1, 2, math.log(2), 0]]]), f32([[10, 20, 4, 6]])
    assert run("DecodeBoxes", [deltas, priors])[0].round(4).tolist() == [[[10, 29, 18, 35]]]
    halved = run("DecodeBoxes", [deltas, priors], variances=(0.5, 0.25, 2.0, 1.0))[0]
    assert halved.round(4).tolist() == [[[4, 20, 20, 26]]]


def align(roi: Sequence[float], size: tuple[int, int] = (1, 1), **attrs: Attribute) -> list[Any]:
    """Bins of a region of x[row, column] = 10 * row + column, of 3 x 4 pixels."""
    x = (10 * np.arange(3)[:, None] + np.arange(4)).astype(np.float32)[None, :, :, None]
    x = np.concatenate([x, x + 100])
    return (
        run("RoiAlign", [x, f32([roi]), np.array([1])], size=size, **attrs)[0][0, :, :, 0].round(4).tolist()
    )


@pytest.mark.parametrize(
    ("roi", "attrs", "expected"),
    [
        ((0, 0, 2, 2), {"samples": 1, "half_pixel": False}, [[111]]),
        ((0, 0, 2, 2), {"samples": 1}, [[105.5]]),
        ((2, 1, 3, 2), {"samples": 1, "half_pixel": False}, [[117.5]]),
        ((0, 0, 2, 2), {"size": (2, 2), "samples": 1, "half_pixel": False}, [[105.5, 106.5], [115.5, 116.5]]),
        ((1, 0, 3, 2), {"samples": 0, "half_pixel": False}, [[112]]),
        ((0, 0, 1, 1), {"samples": 1, "scale": 2.0, "half_pixel": False}, [[111]]),
        ((0, 0, 0, 0), {"samples": 1, "half_pixel": False}, [[105.5]]),
        ((0, 0, 0, 0), {}, [[0]]),
        ((-1, -1, -1, -1), {"samples": 1, "half_pixel": True}, [[0]]),
        ((-0.5, -0.5, -0.5, -0.5), {"samples": 1}, [[100]]),
        ((-0.5, 0.5, -0.5, 0.5), {"samples": 1}, [[100]]),
        ((4.5, 3.5, 4.5, 3.5), {"samples": 1}, [[123]]),
        ((4.6, 3.5, 4.6, 3.5), {"samples": 1}, [[0]]),
        ((4.5, 3.6, 4.5, 3.6), {"samples": 1}, [[0]]),
        ((0, 0, 2, 2), {"samples": 1, "mode": "max"}, [[29]]),
        ((0, 0, 2, 2), {"samples": 2, "half_pixel": False}, [[111]]),
    ],
)
def test_aligned_regions(roi: Sequence[float], attrs: dict[str, Any], expected: list[Any]) -> None:
    if attrs.get("mode") == "max":  # the largest weighted pixel of samples at 0.5, 0.5: each weighs a quarter
        expected = [[round(0.25 * 111, 4)]]
    assert align(roi, **attrs) == expected


@pytest.mark.parametrize(
    ("roi", "size", "scale", "expected"),
    [
        ((0, 0, 3, 2), (1, 1), 1.0, [[23]]), ((0, 0, 3, 2), (3, 2), 1.0, [[1, 3], [11, 13], [21, 23]]),
        ((1, 1, 1, 1), (1, 1), 1.0, [[11]]), ((0.5, 0.5, 0.5, 0.5), (1, 1), 1.0, [[11]]), ((0.49, 0.49, 0.49, 0.49), (1, 1), 1.0, [[0]]),
        ((2, 2, 6, 4), (1, 1), 0.5, [[23]]), ((3, 2, 1, 1), (1, 1), 1.0, [[23]]), ((9, 9, 9, 9), (1, 1), 1.0, [[0]]),
        ((-5, -5, 0, 0), (1, 2), 1.0, [[0, 0]]), ((0, 0, 2, 0), (1, 2), 1.0, [[1, 2]]),
    ],
)  # fmt: skip
def test_regions_by_maximum(
    roi: Sequence[float], size: tuple[int, int], scale: float, expected: list[Any]
) -> None:
    x = (10 * np.arange(3)[:, None] + np.arange(4)).astype(np.float32)[None, :, :, None]
    found = run("RoiMaxPool", [x, f32([roi]), np.array([0])], size=size, scale=scale)[0]
    assert found[0, :, :, 0].tolist() == expected


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes by their low and high corners."""
    sides = [max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1)]
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    common = sides[0] * sides[1]
    return common / (sum(areas) - common)


@pytest.mark.parametrize("seed", range(8))
def test_suppression_of_boxes_of_all_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, size = rng.integers(0, 20, (12, 2)), rng.integers(1, 15, (12, 2))
    boxes = np.concatenate([low, low + size], 1).astype(np.float32)
    scores = rng.permutation(12).astype(np.float32)
    kept: list[int] = []
    for i in np.argsort(-scores):
        if all(overlap(boxes[i], boxes[j]) <= 0.25 for j in kept):
            kept.append(int(i))
    selected, _ = run(
        "NonMaxSuppression", [boxes[None], scores[None, None]], per_class=12, iou_threshold=0.25
    )
    assert [row[2] for row in selected.tolist() if row[2] >= 0] == kept
    centers = np.concatenate([low + size / 2, size], 1).astype(np.float32)
    selected, _ = run(
        "NonMaxSuppression",
        [centers[None], scores[None, None]],
        per_class=12,
        iou_threshold=0.25,
        center=True,
    )
    assert [row[2] for row in selected.tolist() if row[2] >= 0] == kept
