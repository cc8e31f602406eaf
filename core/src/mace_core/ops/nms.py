"""Detection: DecodeBoxes, NonMaxSuppression and CombinedNonMaxSuppression.

Suppression keeps the best of boxes that overlap. How many it keeps is known only at run time: its outputs are
as long as they can be, and `count` says how many of their rows are used. A box that is empty or has a NaN
overlaps with none. A score must be above the threshold; one that is NaN is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Tensor
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present


@dataclass(frozen=True)
class DecodeBoxesAttributes(Attributes):
    """variances: factors of the two offsets and the two logarithms of a box."""

    variances: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class SuppressionAttributes(Attributes):
    """per_class: maximum number of boxes to keep of each class of an image."""

    per_class: int
    iou_threshold: float = 0.0
    score_threshold: float = -math.inf


@dataclass(frozen=True)
class NonMaxSuppressionAttributes(SuppressionAttributes):
    """center: whether a box is stated by its center and size; otherwise by two corners."""

    center: bool = False


@dataclass(frozen=True, kw_only=True)
class CombinedSuppressionAttributes(SuppressionAttributes):
    """total: maximum number of boxes to keep of an image.

    candidates: number of boxes of a class to look at, the best first; 0 for all.
    """

    total: int
    iou_threshold: float = 0.5
    candidates: int = 0


def _operands(inputs: Inputs, attrs: SuppressionAttributes) -> tuple[Tensor, Tensor]:
    boxes, scores = present(inputs)
    for t in (boxes, scores):
        need(t.dtype is DType.F32, f"{t.name} is of type {t.dtype.value}; it must be f32")
    need(len(scores.shape) == 3, f"scores have shape {list(scores.shape)}; their rank must be 3")
    need(attrs.per_class >= 1, f"per_class is {attrs.per_class}; it must be positive")
    need(0 <= attrs.iou_threshold <= 1, f"iou_threshold is {attrs.iou_threshold}; it must be 0 to 1")
    return boxes, scores


def _infer(inputs: Inputs, attrs: NonMaxSuppressionAttributes) -> list[Spec]:
    boxes, scores = _operands(inputs, attrs)
    images, classes, count = scores.shape
    need(
        boxes.shape == (images, count, 4),
        f"boxes have shape {list(boxes.shape)}; it must be [{images}, {count}, 4]",
    )
    return [(DType.I64, (images * classes * min(attrs.per_class, count), 3)), (DType.I64, (1,))]


def _infer_combined(inputs: Inputs, attrs: CombinedSuppressionAttributes) -> list[Spec]:
    boxes, scores = _operands(inputs, attrs)
    images, count, classes = scores.shape
    fits = (
        len(boxes.shape) == 4
        and (*boxes.shape[:2], boxes.shape[3]) == (images, count, 4)
        and boxes.shape[2] in (1, classes)
    )
    need(fits, f"boxes have shape {list(boxes.shape)}; it must be [{images}, {count}, 1 or {classes}, 4]")
    need(attrs.total >= 1, f"total is {attrs.total}; it must be positive")
    need(attrs.candidates >= 0, f"candidates is {attrs.candidates}; it must not be negative")
    rows = (images, attrs.total)
    return [
        (DType.F32, (*rows, 4)),
        (DType.F32, rows),
        (DType.I64, rows),
        (DType.I64, rows),
        (DType.I64, (images,)),
    ]


def _infer_decode(inputs: Inputs, attrs: DecodeBoxesAttributes) -> list[Spec]:
    deltas, priors = present(inputs)
    for t in (deltas, priors):
        need(t.dtype is DType.F32, f"{t.name} is of type {t.dtype.value}; it must be f32")
    need(
        len(deltas.shape) == 3 and deltas.shape[2] == 4,
        f"deltas have shape {list(deltas.shape)}; it must be [N, boxes, 4]",
    )
    need(
        priors.shape == deltas.shape[1:],
        f"priors have shape {list(priors.shape)}; it must be {list(deltas.shape[1:])}",
    )
    return [(DType.F32, deltas.shape)]


def _decode(deltas: Array, priors: Array, attrs: DecodeBoxesAttributes) -> Array:
    """Return low and high corners of the boxes that a network describes relative to priors.

    deltas: offsets of a prior's center, in units of its size, then logarithms of factors of its size.
    priors: two coordinates of the center, then the sizes along them (W. Liu et al., "SSD: Single Shot
    MultiBox Detector", 2016).
    """
    wide = deltas.astype(np.float64) * attrs.variances
    prior_center, prior_size = priors[:, :2].astype(np.float64), priors[:, 2:].astype(np.float64)
    center = prior_center + wide[..., :2] * prior_size
    half = np.exp(wide[..., 2:]) * prior_size / 2
    return np.concatenate([center - half, center + half], -1).astype(np.float32)


def _corners(boxes: Array, center: bool) -> Array:
    """Return low and high corner of every box, and its area, in double precision."""
    wide = boxes.astype(np.float64)
    if center:
        low, high = wide[:, :2] - wide[:, 2:] / 2, wide[:, :2] + wide[:, 2:] / 2
    else:
        low, high = np.minimum(wide[:, :2], wide[:, 2:]), np.maximum(wide[:, :2], wide[:, 2:])
    area = (high[:, 0] - low[:, 0]) * (high[:, 1] - low[:, 1])
    return np.column_stack([low, high, area])


def _overlap(box: Array, others: Array, threshold: float) -> bool:
    """Tell whether intersection over union with any of the others is above the threshold."""
    sides = np.minimum(box[2:4], others[:, 2:4]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides[:, 0], 0) * np.maximum(sides[:, 1], 0)
    # A box without an area, or with a NaN, overlaps with none: 0 / 0 and NaN are above no threshold.
    return bool((common / (box[4] + others[:, 4] - common) > threshold).any())


def _keep_best(
    boxes: Array, scores: Array, attrs: SuppressionAttributes, *, center: bool = False, candidates: int = 0
) -> list[int]:
    """Return the boxes to keep, the best first; of equal scores the first."""
    # The threshold is compared in the scores' own type: frameworks store it as float32, and a score that
    # equals it must not pass because of the digits that a double has more.
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > np.float32(attrs.score_threshold)]
    corners = _corners(boxes, center)
    best: list[int] = []
    for i in order[: candidates or None]:
        if len(best) == attrs.per_class:
            break
        if not _overlap(corners[i], corners[best], attrs.iou_threshold):
            best.append(int(i))
    return best


def _nms(boxes: Array, scores: Array, attrs: NonMaxSuppressionAttributes) -> tuple[Array, Array]:
    """Return image, class and box of each, ordered by image, class and score; -1 after the last."""
    images, classes, count = scores.shape
    rows = []
    for n, c in np.ndindex(images, classes):
        best = _keep_best(boxes[n], scores[n, c], attrs, center=attrs.center)
        rows += [(n, c, i) for i in best]
    selected = np.full((images * classes * min(attrs.per_class, count), 3), -1, np.int64)
    selected[: len(rows)] = np.reshape(rows, (-1, 3))
    return selected, np.array([len(rows)], np.int64)


def _suppress_combined(
    boxes: Array, scores: Array, attrs: CombinedSuppressionAttributes
) -> tuple[Array, ...]:
    """Return the best boxes of all classes of an image; of equal scores the first class; 0 after the last."""
    images, _, classes = scores.shape
    total = attrs.total
    detections, confidences = np.zeros((images, total, 4), np.float32), np.zeros((images, total), np.float32)
    labels = np.zeros((3, images, total), np.int64)
    counts = np.zeros(images, np.int64)
    for n in range(images):
        candidates: list[tuple[int, int]] = []
        for c in range(classes):
            # Boxes are either shared by all classes or one for each: index 0, or that of the class.
            of_class = boxes[n, :, c % boxes.shape[2]]
            indices = _keep_best(of_class, scores[n, :, c], attrs, candidates=attrs.candidates)
            candidates += [(c, i) for i in indices]
        best = sorted(candidates, key=lambda ci: -scores[n, ci[1], ci[0]])[:total]
        counts[n] = len(best)
        for k, (c, i) in enumerate(best):
            detections[n, k], confidences[n, k] = boxes[n, i, c % boxes.shape[2]], scores[n, i, c]
            labels[0, n, k], labels[1, n, k] = c, i
    return detections, confidences, labels[0], labels[1], counts


OPS = (
    Op(
        "DecodeBoxes",
        ("deltas", "priors"),
        ("boxes",),
        _infer_decode,
        _decode,
        DecodeBoxesAttributes,
    ),
    Op(
        "NonMaxSuppression",
        ("boxes", "scores"),
        ("selected", "count"),
        _infer,
        _nms,
        NonMaxSuppressionAttributes,
    ),
    Op(
        "CombinedNonMaxSuppression",
        ("boxes", "scores"),
        ("detections", "confidences", "classes", "indices", "count"),
        _infer_combined,
        _suppress_combined,
        CombinedSuppressionAttributes,
    ),
)
